"""Lines that programs of others print: which become records, and which must not."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lab.protocol.records import FIELDS, KINDS, Record, format_record
from lab.protocol.records.log_parsers import LogParser
from tests.support.agents import ROOT
from tests.support.programs import printed


def read(*lines: str) -> list[Record]:
    parser = LogParser()
    found = (parser.read(line.encode()) for line in lines)
    return [record for record in found if record is not None]


READ = """
# parameter servers and workers
1700.5: Worker 0: training step 5 done (global step: 10)
    lab kind=step local_step=5 global_step=10
After 200 training step(s), validation cross entropy = 1245.6
    lab kind=eval global_step=200 loss=1245.6
After 1000 training step(s), test accuracy using average model is 0.98
    lab kind=eval global_step=1000 accuracy=0.98
Step: 10,  Epoch:  1,  Batch:   5 of   5,  Cost: 0.5000,  AvgTime: 3.10ms
    lab kind=step epoch=0 global_step=10 loss=0.5
acc: 9123/10000
    lab kind=final accuracy=0.9123
On task 1 On iteration 500 ps it reaches 0.912000 accuracy
    lab kind=step global_step=500 accuracy=0.912
step 200: task_index=0 global_step=403 train_acc=0.93
    lab kind=step local_step=200 global_step=403 accuracy=0.93
Final Cost: 0.5000
    lab kind=final loss=0.5
step 20
    lab kind=step global_step=20
# Estimator and its hooks
INFO:tensorflow:loss = 0.5, step = 101 (3.2 sec)
    lab kind=step global_step=101 loss=0.5
I1126 05:59:01.123456 1234 basic_session_run_hooks.py:262] loss = 0.5, step = 101 (3.2 sec)
    lab kind=step global_step=101 loss=0.5
INFO:tensorflow:Saving dict for global step 1000: accuracy = 0.95, global_step = 1000, loss = 0.15
    lab kind=eval global_step=1000 loss=0.15 accuracy=0.95
INFO:tensorflow:Loss for final step: 0.5.
    lab kind=final loss=0.5
# a book and a blog
worker=1,global_step=7, local_step=5, loss = 0.5
    lab kind=step local_step=5 global_step=7 loss=0.5
worker=2, final accuracy = 0.8894000053405762
    lab kind=final accuracy=0.8894000053405762
worker=0,epoch=9,global_step=10896 local_step=5500, loss = 0.5 and more
    lab kind=step epoch=8 local_step=5500 global_step=10896 loss=0.5
After  100 training steps (  2882 global steps), loss on training batch is  0.5.  (1e-05 sec/batch)
    lab kind=step local_step=100 global_step=2882 loss=0.5
# TensorFlow's tutorials
step 100, training accuracy 0.92
    lab kind=step global_step=100 accuracy=0.92
  Num examples: 5000  Num correct: 4500  Precision @ 1: 0.9000
    lab kind=final accuracy=0.9
Accuracy at step 10: 0.6941
    lab kind=step global_step=10 accuracy=0.6941
2017-10-31 16:00:00.123456: Step 90: Validation accuracy = 85.0% (N=100)
    lab kind=eval global_step=90 accuracy=0.85
Final test accuracy = 91.4% (N=162)
    lab kind=final accuracy=0.914
Epoch: 0001 cost= 0.500000000
    lab kind=epoch epoch=0 loss=0.5
Accuracy: 0.9125 (91.25%)
    lab kind=final accuracy=0.9125
# TensorFlow 2
Epoch 1, Loss: 0.5, Accuracy: 95.3, Test Loss: 0.1, Test Accuracy: 96.1
    lab kind=epoch epoch=0 loss=0.5 accuracy=0.961
[1,0]<stdout>:Step #10\tLoss: 0.500000
    lab kind=step global_step=10 loss=0.5
# the step of an epoch is no global step
Epoch [1/5], Step [100/600], Loss: 0.5
    lab kind=epoch epoch=0 loss=0.5
Step 100/1000 | loss 0.5
    lab kind=step global_step=100 loss=0.5
{'loss': 0.5, 'step': 10}
    lab kind=step global_step=10 loss=0.5
2024-01-01 10:00:00,123 INFO step=10 loss=5e-1
    lab kind=step global_step=10 loss=0.5
# steps and epochs without a loss or an accuracy
Training epoch 7
    lab kind=epoch epoch=6
--- Start training epoch 7. ---
    lab kind=epoch epoch=6
Starting epoch 2 of 10
    lab kind=epoch epoch=1
Completed epoch 2
    lab kind=epoch epoch=1
Epoch 2 in 3.21 sec
    lab kind=epoch epoch=1
Epoch [1/10], Step [100/600]
    lab kind=epoch epoch=0
Epoch: 1/10, Batch: 100/600, Time: 3.2 s
    lab kind=epoch epoch=0
rank: 0, step: 5, value: tensor([3.5000])
    lab kind=step global_step=5
Rank 1 | step 5
    lab kind=step global_step=5
[Rank 0] step=10, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]
    lab kind=step global_step=10
[GPU0] Epoch 1 | Batchsize: 32 | Steps: 64
    lab kind=epoch epoch=0
local step 5 of worker 1
    lab kind=step local_step=5
local step 5 of worker 1 (global step 12)
    lab kind=step local_step=5 global_step=12
Worker : 0, Step: 100, Accuracy (batch): 0.86
    lab kind=step global_step=100 accuracy=0.86
Accuracy (batch): 0.86
    lab kind=step accuracy=0.86
loss: 2.303494  [   64/60000]
    lab kind=step loss=2.303494
iter 10: loss 3.2000, time 5.12ms, mfu 12.30%
    lab kind=step global_step=10 loss=3.2
step 250: train loss 2.5, val loss 2.6
    lab kind=step global_step=250 loss=2.5
# Hugging Face: a fraction of an epoch belongs to the epoch that it is a part of
{'loss': 0.3, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': 0.1}
    lab kind=epoch epoch=0 loss=0.3
{'loss': '0.3', 'learning_rate': '5e-05', 'epoch': '1.5'}
    lab kind=epoch epoch=1 loss=0.3
{'eval_loss': 0.3, 'eval_accuracy': 0.9, 'eval_runtime': 1.2, 'epoch': 3.0}
    lab kind=eval epoch=2 loss=0.3 accuracy=0.9
# tqdm
 45%|████▌     | 45/100 [00:10<00:12,  4.50it/s]
    lab kind=step global_step=45
100%|██████████| 45/45 [01:00:10<00:00, 1.5s/it, loss=0.5]
    lab kind=step global_step=45 loss=0.5
Epoch 2: 100%|██████████| 938/938 [00:10<00:00, 90.1it/s, loss=0.5, v_num=3]
    lab kind=epoch epoch=1 loss=0.5
[rank 1] Training: 100%|██████████| 938/938 [00:10<00:00, 90.1it/s]
    lab kind=step global_step=938
loss 0.500: 100%|##########| 938/938 [00:10<00:00, 90.1it/s]
    lab kind=step global_step=938 loss=0.5
  0%|          | 0/9 [00:00<?, ?it/s]\r 11%|█         | 1/9 [00:01<00:08,  1.0s/it]
    lab kind=step global_step=1
# TensorFlow 1's MonitoredTrainingSession
INFO:tensorflow:global_step/sec: 28.9
    lab kind=step message="28.9 global steps/s"
I1126 05:59:01.123456 1234 basic_session_run_hooks.py:702] global_step/sec: 28.9
    lab kind=step message="28.9 global steps/s"
# the last state of a line that is overwritten
step 1 loss 0.9\rstep 2 loss 0.7\b\b\b\b\rstep 3 loss 0.5
    lab kind=step global_step=3 loss=0.5
\x1b[1mstep 3\x1b[0m \x1b[32mloss 0.5\x1b[0m
    lab kind=step global_step=3 loss=0.5
"""


@pytest.mark.parametrize(("line", "record"), printed(READ))
def test_a_line_of_a_program(line: str, record: Record) -> None:
    assert read(line) == [record]


BOLD, BAR = "\x1b[1m", "\x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m\x1b[37m"


def test_keras_2_prints_a_bar() -> None:
    assert read(
        "Epoch 1/2",
        "  1/469 [..............................] - ETA: 1:39 - loss: 2.3 - accuracy: 0.1",
        "400/469 [========================>.....] - 2s 6ms/step - loss: 0.6 - accuracy: 0.8",
        "469/469 [==============================] - 3s 6ms/step - loss: 0.5 - accuracy: 0.9",
        "469/469 [==============================] - 3s 6ms/step - loss: 0.5 - accuracy: 0.9"
        " - val_loss: 0.4 - val_accuracy: 0.92",
        "Epoch 2/2",
        "469/469 [==============================] - 3s 6ms/step - loss: 0.3 - accuracy: 0.94"
        " - val_loss: 0.2 - val_accuracy: 0.95",
        "313/313 [==============================] - 0s 1ms/step - loss: 0.2 - accuracy: 0.96",
    ) == [
        {"kind": "epoch", "epoch": 0, "loss": 0.5, "accuracy": 0.9},
        {"kind": "eval", "epoch": 0, "loss": 0.4, "accuracy": 0.92},
        {"kind": "epoch", "epoch": 1, "loss": 0.3, "accuracy": 0.95},
        {"kind": "eval", "loss": 0.2, "accuracy": 0.96},
    ]


def test_keras_3_prints_a_bar() -> None:
    assert read(
        "Epoch 1/2",
        f"{BOLD}  1/469\x1b[0m {BAR}━━━ {BOLD}1:39\x1b[0m 213ms/step - accuracy: 0.1 - loss: 2.3",
        f"{BOLD}469/469\x1b[0m {BAR}\x1b[0m {BOLD}1s\x1b[0m 2ms/step - accuracy: 0.9 - loss: 0.5",
        "Epoch 2/2",
        "\b\b\b\b\r".join(
            f"{BOLD}{step}/469\x1b[0m {BAR} {BOLD}1s\x1b[0m 2ms/step - accuracy: 0.9 - loss: 0.3"
            for step in range(1, 470)
        ),
    ) == [
        {"kind": "epoch", "epoch": 0, "loss": 0.5, "accuracy": 0.9},
        {"kind": "epoch", "epoch": 1, "loss": 0.3, "accuracy": 0.9},
    ]


@pytest.mark.parametrize(
    "line",
    [
        "469/469 - 3s - loss: 0.5 - accuracy: 0.9 - 3s/epoch - 6ms/step",
        "469/469 - 1s - 2ms/step - accuracy: 0.9 - loss: 0.5",
        " - 3s - loss: 0.5 - acc: 0.9",
        "60000/60000 [==============================] - 3s 50us/step - loss: 0.5 - acc: 0.9",
        "60000/60000 [==============================] - 3s 50us/sample - loss: 0.5 - acc: 0.9",
        "469/469 - 3s - loss: 0.5 - sparse_categorical_accuracy: 0.9",
    ],
)
def test_keras_prints_one_line_for_an_epoch(line: str) -> None:
    expected = {"kind": "epoch", "epoch": 3, "loss": 0.5, "accuracy": 0.9}
    assert read("Epoch 4/5", line) == [expected]


def test_keras_prints_no_epoch_if_there_is_one() -> None:
    fit = "469/469 - 1s - 2ms/step - accuracy: 0.9 - loss: 0.5"
    test = "79/79 - 0s - 1ms/step - accuracy: 0.8 - loss: 0.6"
    assert read(fit, test, fit) == [
        {"kind": "epoch", "epoch": 0, "loss": 0.5, "accuracy": 0.9},
        {"kind": "eval", "loss": 0.6, "accuracy": 0.8},
        {"kind": "epoch", "epoch": 1, "loss": 0.5, "accuracy": 0.9},
    ]


def test_epochs_count_from_0_or_1_as_the_first_line_shows() -> None:
    lines = [f"Epoch {epoch}: loss 0.5" for epoch in range(3)]
    assert [record["epoch"] for record in read(*lines)] == [0, 1, 2]
    assert [record["epoch"] for record in read(*lines[1:])] == [0, 1]


@pytest.mark.parametrize(("text", "fraction"), [("1", 1.0), ("1.0", 1.0), ("0.5%", 0.005)])
def test_an_accuracy_is_a_fraction_or_a_percentage(text: str, fraction: float) -> None:
    assert read(f"Accuracy: {text}") == [{"kind": "final", "accuracy": fraction}]


NOTHING = [
    "",
    "Epoch 1/5",
    "Step 1: install, then lose 3 pounds",
    "Epoch 3",
    "loss: 0.3",
    "target accuracy: 0.9",
    "accuracy 0.9 is required",
    "training accuracy: 0.9",
    "accuracy: 101",
    "accuracy: 11/10",
    "acc: 5/0",
    "loss: 5/10",
    "stops when it reaches 0.9 accuracy",
    "step 500 of the plan: stop as soon as it reaches 0.9 accuracy",
    "step 5 reaches 0.9 speed",
    "accuracy: -0.5",
    "Accuracy: 9837/10000 correct",
    "accuracy=0.9, epochs=5",
    "batch_size=32, accuracy=0.9",
    "Namespace(epoch=5, loss=0.1, steps=100)",
    "max_step: 1000, loss: 0.3",
    "save every step 100, loss 0.3",
    "step 5, loss scale 128",
    "step 5, loss 0,35",
    "step 5.5, loss 0.3",
    "step five, loss 0.3",
    "step 1234567890123456789, loss 0.3",
    "step 5, lossless 3",
    "step 5 or step 6, loss 0.3",
    "step 5, loss 3/4",
    "INFO:tensorflow:global_step/sec: 120.3, loss: 0.3",
    "INFO:tensorflow:Saving checkpoints for 100 into /tmp/model.ckpt.",
    "Epoch 1: val_loss improved from 0.5 to 0.3, saving model to best.keras",
    "Epoch 5: ReduceLROnPlateau reducing learning rate to 0.001.",
    '  File "train.py", line 10, in step',
    "ValueError: step 5, loss 0.3",
    "tensorflow.python.framework.errors_impl.InvalidArgumentError: step 5: loss 0.3",
    "I tensorflow/core/common_runtime/step_stats.cc:72] step 5 loss 0.3",
    "313/313 [==============================] - 0s 1ms/step",
    "1/469 [..............................] - ETA: 1:39 - loss: 2.3 - accuracy: 0.1",
    "400/469 [=======================>......] - 2s 6ms/step - loss: 0.6 - accuracy: 0.8",
    "400/469 ━━━━━━━━━━━━━━━━━━━━ 0s 2ms/step - accuracy: 0.8 - loss: 0.6",
    "Precision @ 5: 0.9",
    "top_5_accuracy: 0.9",
    "lab kind=step global_step=5 loss=0.3 wrong=1",
    "he wrote: lab kind=step global_step=5 loss=0.3",
    "step 1 loss 0.5\rdone",
    # configurations, plans, times, versions and addresses
    "epoch: 10",
    "start epoch: 0",
    "num_epochs=10, rank=0, batch_size=32",
    "train_epoch: 3, rank: 0",
    "{'epoch': 3, 'rank': 0, 'step': 5, 'local_rank': 0}",
    "rank 0: step 1 of the installation",
    "worker 0, step 2: compile the kernel",
    "node 1: step 1.5",
    "task 1: 12:30:05 step 5:30",
    "step 1 of the installation",
    "Step 1/5 : FROM python:3.11",
    "Starting at step 0",
    "Resuming from epoch 3",
    "Training for 10 epochs",
    "Training epochs 10",
    "saved the checkpoint of epoch 3 in 3.2 sec",
    "best epoch 3",
    "epoch 1795271203123",
    "2026-11-29 18:42:41 epoch",
    "http://tf1:2222/step/5",
    "grpc://worker0:2222",
    "torch 2.13.0, rank 0, cuda 12.6",
    "Downloading: 100%|██████████| 9.9M/9.9M [00:01<00:00, 9.9MB/s]",
    "Map: 100%|██████████| 1000/1000 [00:00<00:00, 5000.0 examples/s]",
    "Loading checkpoint shards: 100%|██████████| 2/2 [00:00<00:00, 5.0it/s]",
    "Evaluating: 100%|██████████| 20/20 [00:00<00:00, 5.0it/s]",
    "  0%|          | 0/100 [00:00<?, ?it/s]",
    "100%|##########| 170498071/170498071 [00:14<00:00, 11812345.12it/s]",
    "  5%|5         | 5/100",
    "rank 0 epoch 5 has been skipped",
    "worker 3 | step 7 failed with an error",
    "[rank0]:[W1129 18:42:00.0 ProcessGroupNCCL.cpp:1496] Warning: step 5",
    "Accuracy (batch): 86 of 100",
    "loss: 2.3 [s]",
    "global_step/sec: 28.9",
    "WARNING:tensorflow:global_step/sec: 28.9",
    "step 5 loss 0.5" + " " * 2_000 + ".",
]


@pytest.mark.parametrize("line", NOTHING)
def test_another_line_is_no_record(line: str) -> None:
    assert read(line) == []


def test_the_source_in_a_traceback_is_no_record() -> None:
    lines = ["Traceback (most recent call last):", '  File "a.py", line 3, in <module>']
    assert read(*lines, "    loss = 0.5  # step 3") == []
    assert len(read(*lines, "    train()", "step 3, loss 0.5")) == 1


WORDS = (
    "step", "global step", "global_step:", "local_step=", "epoch", "iter", "loss", "loss =", "cost",
    "accuracy:", "test accuracy", "val_loss:", "cross entropy", "precision @ 1:", "at step",
    "after", "steps,", "step(s)", "is", ",", " - ", "(", ")", "[", "]", "%", "/", "#", "=", ":",
    "\r", "\b", "\x1b[1m", "Epoch 1/5\n", "469/469", "6ms/step", "3s", "images/sec:", "nan", "inf",
)  # fmt: skip
NUMBERS = ("0", "1", "5", "10", "0.5", "-1", "1e5", "1e999", "95.3", "1,000", "1,0", "7.", ".5")
TEXT = st.lists(
    st.sampled_from(WORDS) | st.sampled_from(NUMBERS) | st.text(max_size=3), max_size=20
).map(" ".join)


@given(TEXT)
@example("step 1,000 loss .5 accuracy 95.3")
@example("Epoch 5 loss 7.")
@example("accuracy: 469/469")
def test_a_record_has_only_numbers_of_its_line(text: str) -> None:
    """Any text gives good records or none, and no number comes from elsewhere."""
    parser = LogParser()
    for line in text.split("\n"):
        record = parser.read(line.encode())
        if record is None:
            continue
        format_record(record)
        json.dumps(record)
        assert record["kind"] in KINDS
        assert record.keys() <= FIELDS.keys()
        found = re.findall(r"[-+]?(?:[\d,]*\.)?[\d,]+(?:e[-+]?\d+)?|nan|inf", line.lower())
        numbers = {float(each.replace(",", "") or "nan") for each in found}
        shares = [
            int(part.replace(",", "") or 0) / int(whole.replace(",", "") or 1)
            for part, whole in re.findall(r"([\d,]+)/([\d,]*[1-9][\d,]*)", line)
        ]
        numbers = {str(each) for each in (*numbers, *shares, *(each / 100 for each in numbers))}
        if "epoch" in record:
            epochs = {str(float(record["epoch"])), str(float(record["epoch"]) + 1)}
            assert epochs & numbers or "469" in line  # Keras prints it in an earlier line
        for name in record.keys() - {"kind", "epoch"}:
            assert str(float(record[name])) in numbers


def test_no_group_is_possessive() -> None:
    """Python before 3.11.5, which images have, matches it wrongly (cpython issue 106052)."""
    for path in (ROOT / "lab").rglob("*.py"):
        assert not re.search(r"\)[*+?]\+", path.read_text("utf-8")), path
