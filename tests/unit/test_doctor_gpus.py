"""The doctor's judgements of the driver, the GPUs, and how containers get them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from lab.doctor import gpu_support, gpus
from lab.doctor.cdi import judge_cdi, read_specs
from lab.doctor.commands import CommandResult
from lab.doctor.engine import EngineInfo
from lab.doctor.gpus import Toolkit, Trial, judge_trial
from lab.doctor.model import Outcome, Status
from lab.gpu import Condition, Fault, Gpu
from tests.support.doctor import (
    BOX,
    ENGINE,
    H100,
    NO_BOX,
    ROOTLESS,
    SEEN,
    UUID,
    Judge,
    Judgements,
    check,
    fault,
    told,
)

OTHER, SLICE = UUID.replace("1", "2"), UUID.replace("GPU", "MIG")
CUT = replace(BOX, gpus=(Gpu(1, SLICE, "NVIDIA A100 MIG 3g.20gb", slice_of=OTHER),))


def support(
    *capabilities: str, old_driver: bool = False, environ: Mapping[str, str] = MappingProxyType({})
) -> Outcome:
    found = tuple(
        replace(H100, index=index, compute_capability=each)
        for index, each in enumerate(capabilities)
    )
    host = replace(BOX, gpus=found)
    host = replace(host, driver="470.1", cuda="") if old_driver else host
    return gpu_support.judge_support(host, environ)


def toolkit(
    info: EngineInfo = ENGINE,
    found: Toolkit = Toolkit(),  # noqa: B008  (frozen)
    *,
    cdi: bool = False,
    gpus_wanted: int = 1,
    cudnn: bool = False,
    trial: str = "",
) -> Outcome:
    result = CommandResult(0 if trial else None, trial)
    return gpus.judge_toolkit(
        info,
        found,
        uses_cdi=cdi,
        requested_gpus=gpus_wanted,
        has_cudnn=cudnn,
        trial=Trial(UUID, None, result),
    )


REFUSED = 'docker: could not select device driver "nvidia" with capabilities: [[gpu]].\n'


def tried(
    code: int | None, out: str = "", err: str = "", image: str | None = "lab:cuda"
) -> Outcome:
    return judge_trial(Trial(UUID, image, CommandResult(code, out, err)))


NO_LIBCUDA = replace(
    BOX,
    cuda="",
    faults=(Fault(Condition.OTHER, "CUDA version", "libcuda.so.1 is not installed", "get it"),),
)
OLD_NVML = replace(BOX, faults=(fault(Condition.OLD_DRIVER, "CUDA version"),))
LOST = replace(BOX, faults=(fault(Condition.GPU_LOST, "GPU 3"),))
LEFT_OUT = replace(BOX, gpus=(), left_out=("GPU 0 is in MIG mode without slices",))
UNCUT = replace(BOX, faults=(fault(Condition.NO_SLICES, "GPU 2"),))
NONE = replace(NO_BOX, faults=(fault(Condition.NO_DRIVER),))
NEWER = replace(NO_BOX, faults=(fault(Condition.MISMATCH),))
DENIED = fault(Condition.NO_PERMISSION)
CTK = Toolkit(has_ctk=True)
HOOK = Toolkit(hook="/usr/bin/nvidia-container-runtime-hook", has_ctk=True)
GPUS: Judgements = [
    (lambda: gpus.judge_driver(BOX, 1, 1), "ok", "^580.95.05, CUDA up to 13.0$"),
    (lambda: gpus.judge_driver(NO_LIBCUDA, 1, 1), "ok", "^580.95.05$"),
    # A missing GPU is no failure, whatever the config requests.
    (lambda: gpus.judge_driver(NONE, 0, 8), "warning stops: no GPU", "CPUs"),
    (lambda: gpus.judge_driver(NONE, 2, 8), "warning stops: no driver", "2 NVIDIA.* nvidia-driver"),
    (lambda: gpus.judge_driver(NEWER, 1, 8), f"failed stops: {Condition.MISMATCH}", "sudo reboot"),
    (lambda: gpus.judge_driver(DENIED, 1, 0), "warning stops: no permission", "ls -l /dev/nvidia"),
    (lambda: gpus.judge_cuda(BOX, False), "warning", "nvidia-modprobe -u -c=0"),
    (lambda: gpus.judge_cuda(NO_LIBCUDA, True), "warning: no CUDA", "libcuda.so.1 .* → get it"),
    # A driver that is too old to report the version has CUDA all the same.
    (lambda: gpus.judge_cuda(OLD_NVML, True), "ok", "start"),
    (lambda: gpus.judge_gpus(NO_LIBCUDA, 1), "ok", "1 NVIDIA H100 80GB HBM3 of 80 GiB"),
    (lambda: gpus.judge_gpus(LEFT_OUT, 1), "warning stops: no GPU", "without slices"),
    (lambda: gpus.judge_gpus(LOST, 2), "failed: GPU lost", "GPU 3: GPU lost.* Xid"),
    (lambda: gpus.judge_gpus(LOST, 0), "warning", "Xid"),
    (lambda: gpus.judge_gpus(replace(LOST, gpus=()), 0), "warning stops: GPU lost", "none; GPU 3"),
    (lambda: gpus.judge_mig(CUT), "ok", "1 slice, by UUID, on all"),
    (lambda: gpus.judge_mig(replace(BOX, gpus=(H100, *CUT.gpus))), "ok", "and 1 whole GPU"),
    (lambda: gpus.judge_mig(UNCUT), "warning", "-i 2 -mig 0"),
    (lambda: support("9.0"), "ok", "code for all GPUs"),
    (lambda: support("9.0", "5.2"), "warning", "^GPU 1: .*needs"),
    (lambda: support("6.0"), "warning", "^GPU 0: cuDNN"),
    (lambda: support("8.0", "9.0", old_driver=True), "warning: driver too old", "12.0, not.*555"),
    (lambda: support("9.0", environ={"LAB_IMAGE": "mine"}), "skipped", "does not know"),
    (lambda: toolkit(told(Runtimes={"nvidia": {}})), "ok", "runtime `nvidia`"),
    (lambda: toolkit(found=HOOK), "ok", HOOK.hook),
    (lambda: toolkit(cdi=True), "ok", "CDI"),
    (lambda: toolkit(trial=SEEN), "ok", "a container gets"),
    (toolkit, "failed stops: no container toolkit", "install-guide"),
    (lambda: toolkit(gpus_wanted=0), "warning stops: no container toolkit", "not installed"),
    (
        lambda: toolkit(found=CTK),
        "failed stops: no container toolkit",
        "→ `sudo nvidia-ctk runtime",
    ),
    (lambda: gpus.judge_daemon_reload(ENGINE, uses_cdi=False), "warning", "groupfs.*cdi generate"),
    (lambda: gpus.judge_daemon_reload(ENGINE, uses_cdi=True), "ok", "CDI"),
    (lambda: gpus.judge_daemon_reload(ROOTLESS, uses_cdi=False), "ok", "rootless"),
    (lambda: gpus.judge_local_backend("12.5.1", True, False), "ok", "for CUDA"),
    (lambda: gpus.judge_local_backend("12.5.1", False, True), "warning", "\\[and-cuda\\]==2.21"),
    (lambda: gpus.judge_local_backend("", False, True), "ok", "in containers"),
    (lambda: gpus.judge_local_backend("", False, False), "warning: no CUDA", "install Docker"),
    (lambda: tried(0, image=None), "skipped", "lab build"),
    (lambda: tried(0, SEEN), "ok", "no other"),
    (lambda: tried(125, "", REFUSED), "failed: no GPU in a container", "container toolkit"),
    (lambda: tried(9, "NVML: Unknown Error\n"), "failed: no GPU in a container", "^NVML: Unknown"),
    (lambda: tried(0, SEEN + SEEN), "failed: no GPU in a container", "sees 2 GPUs"),
]


@pytest.mark.parametrize(("judge", "verdict", "words"), GPUS)
def test_each_judgement(judge: Judge, verdict: str, words: str) -> None:
    check(judge, verdict, words)


def test_a_specification_without_a_gpu_is_a_warning(tmp_path: Path) -> None:
    engine = told(ServerVersion="29.2.0", CDISpecDirs=[str(tmp_path), str(tmp_path / "none")])
    device = {"name": UUID, "containerEdits": {"deviceNodes": [{"path": "/dev/null"}]}}
    for devices, status in (([device], Status.OK), ([], Status.WARNING)):
        text = json.dumps({"kind": "nvidia.com/gpu", "devices": devices})
        (tmp_path / "a.json").write_text(text)
        found = judge_cdi(BOX, engine, read_specs(engine), has_refresh_service=False)
        assert found.status is status, found
    assert f"lacks {UUID}" in found.what
