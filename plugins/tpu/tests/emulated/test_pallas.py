"""Pallas kernels through torch_tpu's jax_op, interpreted: a kernel written for a TPU runs unchanged."""

import jax
import jax.numpy as jnp
import pytest
import torch
from jax.experimental import pallas as pl

import accelhub

EPSILON = 1e-6


def _kernel(x_ref, weight_ref, out_ref):
    x = x_ref[...]
    out_ref[...] = x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + EPSILON) * weight_ref[...]


def _gradient_kernel(x_ref, weight_ref, grad_ref, out_ref):
    x, grad = x_ref[...], grad_ref[...] * weight_ref[...]
    scale = jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + EPSILON)
    out_ref[...] = scale * grad - x * scale**3 * jnp.mean(x * grad, axis=-1, keepdims=True)


def reference(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * weight


@pytest.fixture(scope="module")
def rms_norm():
    """An RMSNorm over rows of a matrix, one block of 8 rows a step, with the gradient of its input."""

    def call(kernel, x, weight, *more):
        rows = pl.BlockSpec((8, x.shape[1]), lambda i: (i, 0))
        return pl.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
            grid=(x.shape[0] // 8,),
            in_specs=[rows, pl.BlockSpec((x.shape[1],), lambda _: (0,)), *(rows for _ in more)],
            out_specs=rows,
        )(x, weight, *more)

    def forward(x: jax.Array, weight: jax.Array) -> jax.Array:
        return call(_kernel, x, weight)

    def backward(x: jax.Array, weight: jax.Array, grad: jax.Array) -> jax.Array:
        return call(_gradient_kernel, x, weight, grad)

    op = torch.tpu.pallas.jax_op("accelhub_test::rms_norm", forward)
    gradient = torch.tpu.pallas.jax_op("accelhub_test::rms_norm_backward", backward)

    def save(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    op.register_autograd(lambda ctx, grad: (gradient(*ctx.saved_tensors, grad), None), setup_context=save)
    return op


@pytest.mark.parametrize("compiled", [False, True])
def test_rms_norm_forward_and_gradient(rms_norm, compiled):
    torch.manual_seed(0)
    x, weight, grad = torch.randn(32, 128), torch.randn(128), torch.randn(32, 128)
    on_tpu, on_cpu = x.clone().to("tpu").requires_grad_(), x.clone().requires_grad_()
    function = accelhub.compile(rms_norm) if compiled else rms_norm
    result, expected = function(on_tpu, weight.to("tpu")), reference(on_cpu, weight)
    assert torch.allclose(result.detach().cpu(), expected.detach(), atol=1e-5)
    result.backward(grad.to("tpu"))
    expected.backward(grad)
    assert torch.allclose(on_tpu.grad.cpu(), on_cpu.grad, atol=1e-5)
