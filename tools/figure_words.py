"""The words of the lessons' figures in Chinese."""

from typing import Final

CHINESE: Final = {
    # async
    "Three workers train asynchronously, each at its own speed": (
        "三个工作节点异步训练，速度各不相同"
    ),
    "update": "更新",
    "staleness": "陈旧度",
    "read": "读取",
    "compute": "计算",
    "count, apply": "计数并应用",
    "band: {} updates between its read and its own": "色带：读取与自己的更新之间有 {} 次更新",
    # sync
    "Three workers train synchronously; above without a backup worker, below with one": (
        "三个工作节点同步训练：上面没有备份工作节点，下面有一个"
    ),
    "each update needs all 3 gradients": "每次更新需要全部 3 个梯度",
    "each update needs 2 of 3 gradients": "每次更新需要 3 个梯度中的 2 个",
    "read, compute": "读取并计算",
    "wait for a token": "等待令牌",
    "dropped": "被丢弃",
    # tokens
    "The queue of tokens: a fast worker takes two in one round": (
        "令牌队列：快的工作节点在一轮里取走两个令牌"
    ),
    "worker-{} adds a gradient": "worker-{} 加入一个梯度",
    "worker-{}: token {} < {}, dropped": "worker-{}：令牌 {} < {}，丢弃",
    "worker-{} takes a token": "worker-{} 取走一个令牌",
    "update {} takes the gradients": "更新 {} 取走这些梯度",
    "update {} is done: {} tokens": "更新 {} 完成：{} 个令牌",
    "token queue": "令牌队列",
    "gradients": "梯度",
    "gradients: w0 is one of worker-0": "梯度：w0 来自 worker-0",
    # ring
    "A ring all-reduce of four workers in six frames": "四个工作节点的环形 all-reduce，共六步",
    "cells: the parts a, b, c, d of a worker's gradients": (
        "格子：一个工作节点的梯度的 a、b、c、d 四段"
    ),
    "number: the gradients that are summed in the part": "数字：这一段里已经相加的梯度个数",
    "the sum of all 4": "全部 4 个之和",
    "just received": "刚刚收到",
    # overshoot
    "Four updates on a parabola: gradients from one point overshoot": (
        "抛物线上的四次更新：同一点的梯度会走过头"
    ),
    "each gradient is computed": "每个梯度都在上一次",
    "where the last update led": "更新到达的点计算",
    "4 gradients are computed": "4 个梯度都在",
    "at the same point, 0": "同一点 0 计算",
    "loss {:.2f} → {:.3f}": "损失 {:.2f} → {:.3f}",
    "{} from one point: rate {:.2f}": "同一点 {} 个：学习率 {:.2f}",
    "learning rate {}; the numbers count the updates": "学习率 {}；数字是更新的次数",
    # placement
    "Variables on two parameter servers, operations on two workers": (
        "变量在两个参数服务器上，运算在两个工作节点上"
    ),
    "device CPU:0": "设备 CPU:0",
    "device GPU:0, else CPU:0": "设备 GPU:0，没有则 CPU:0",
    "forward: logits, loss": "前向：logits、损失",
    "backward: gradients": "反向：梯度",
    "variables": "变量",
    "operations": "运算",
    "read parameters": "读取参数",
    "send gradients": "发送梯度",
}
"""The Chinese text of each English one."""
