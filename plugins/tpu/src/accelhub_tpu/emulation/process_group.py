"""Several emulated chips: a process group that carries tensors over gloo.

torch_tpu's own `tpu_dist` compiles collectives into programs that span real chips. In emulation each chip is a process
of its own, so tensors are copied to the CPU, exchanged by gloo and copied back. It is registered under torch_tpu's own
backend name, which transformers and scripts ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

BACKEND: Final = "tpu_dist"

Tensors = Sequence[torch.Tensor]


def register() -> None:
    """Take over the backend name; a group of that name made afterwards is emulated."""
    dist.Backend.register_backend(BACKEND, StagedProcessGroup, devices=["tpu"])


class _Done(dist.Work):
    """A collective that has ended, with its result."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self._result = result
        self._future: torch.futures.Future[Any] = torch.futures.Future()
        self._future.set_result(result)

    def wait(self, timeout: timedelta | None = None) -> bool:  # noqa: ARG002 - torch's signature
        return True

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        return self._future

    def result(self) -> Any:
        return self._result


class StagedProcessGroup(dist.ProcessGroup):
    """Collectives on device tensors through host memory. Each ends before it returns."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout)

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        return BACKEND

    @property
    def group_name(self) -> str:
        name: str = dist.distributed_c10d._world.pg_names.get(self, "0")
        return name

    def allreduce(self, tensors: Tensors, opts: Any = None) -> _Done:
        staged = _stage(tensors)
        self._gloo.allreduce(staged, opts or dist.AllreduceOptions()).wait()
        return _Done(_return(tensors, staged))

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> _Done:
        return _Done([self.allreduce([tensor], opts).result()[0] for tensor in tensors])

    def reduce(self, tensors: Tensors, opts: Any) -> _Done:
        staged = _stage(tensors)
        self._gloo.reduce(staged, opts).wait()
        return _Done(_return(tensors, staged))

    def broadcast(self, tensors: Tensors, opts: Any) -> _Done:
        staged = _stage(tensors)
        self._gloo.broadcast(staged, opts).wait()
        return _Done(_return(tensors, staged))

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> _Done:
        staged = [[torch.empty_like(tensor, device="cpu") for tensor in output] for output in outputs]
        self._gloo.allgather(staged, _stage(inputs), opts or dist.AllgatherOptions()).wait()
        for output, gathered in zip(outputs, staged, strict=True):
            _return(output, gathered)
        return _Done(outputs)

    def _allgather_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> _Done:
        pieces = [torch.empty_like(tensor, device="cpu") for _ in range(self.size())]
        self._gloo.allgather([pieces], _stage([tensor]), opts or dist.AllgatherOptions()).wait()
        output.copy_(torch.cat([piece.reshape(-1) for piece in pieces]).view(output.shape))
        return _Done([output])

    def allgather_into_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> _Done:
        for output, tensor in zip(outputs, inputs, strict=True):
            self._allgather_base(output, tensor, opts)
        return _Done(outputs)

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> _Done:
        staged = [[torch.empty_like(tensor, device="cpu") for tensor in output] for output in outputs]
        self._gloo.gather(staged, _stage(inputs), opts).wait()
        for output, gathered in zip(outputs, staged, strict=True):
            _return(output, gathered)
        return _Done(outputs)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> _Done:
        staged = [torch.empty_like(tensor, device="cpu") for tensor in outputs]
        self._gloo.scatter(staged, [_stage(tensors) for tensors in inputs], opts).wait()
        return _Done(_return(outputs, staged))

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> _Done:
        for output, tensors in zip(outputs, inputs, strict=True):
            self._reduce_scatter_base(output, torch.stack(_stage(tensors)), opts)
        return _Done(outputs)

    def _reduce_scatter_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> _Done:
        options = dist.AllreduceOptions()
        if opts is not None:
            options.reduceOp = opts.reduceOp
        staged = _stage([tensor.clone()])
        self._gloo.allreduce(staged, options).wait()
        output.copy_(staged[0].reshape(-1).chunk(self.size())[self.rank()].view(output.shape))
        return _Done([output])

    def reduce_scatter_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> _Done:
        for output, tensor in zip(outputs, inputs, strict=True):
            self._reduce_scatter_base(output, tensor, opts)
        return _Done(outputs)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> _Done:  # noqa: ARG002
        """Every rank sends its k-th input to rank k: all ranks gather all inputs, and keep theirs."""
        for source in range(self.size()):
            staged = [torch.empty_like(outputs[source], device="cpu")]
            options = dist.ScatterOptions()
            options.rootRank = source
            self._gloo.scatter(staged, [_stage(inputs)] if source == self.rank() else [], options).wait()
            _return([outputs[source]], staged)
        return _Done(outputs)

    def alltoall_base(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_sizes: list[int],
        input_sizes: list[int],
        opts: Any = None,
    ) -> _Done:
        outputs = output.split(output_sizes) if output_sizes else output.chunk(self.size())
        inputs = tensor.split(input_sizes) if input_sizes else tensor.chunk(self.size())
        self.alltoall(outputs, inputs, opts)
        return _Done([output])

    def send(self, tensors: Tensors, destination: int, tag: int) -> _Done:
        self._gloo.send(_stage(tensors), destination, tag).wait()
        return _Done(tensors)

    def recv(self, tensors: Tensors, source: int, tag: int) -> _Done:
        staged = [torch.empty_like(tensor, device="cpu") for tensor in tensors]
        self._gloo.recv(staged, source, tag).wait()
        return _Done(_return(tensors, staged))

    # torch 2.13 calls these by new names, torch 2.11 and 2.12 by the old ones.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    all_to_all_single = alltoall_base
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def barrier(self, opts: Any = None) -> _Done:  # noqa: ARG002
        self._gloo.barrier().wait()
        return _Done([])


def _stage(tensors: Tensors) -> list[torch.Tensor]:
    return [tensor.detach().cpu().contiguous() for tensor in tensors]


def _return(tensors: Tensors, staged: Tensors) -> Tensors:
    for tensor, result in zip(tensors, staged, strict=True):
        tensor.detach().copy_(result)
    return tensors
