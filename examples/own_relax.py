"""A module written by hand, a pass and a kernel of one's own: compiled, verified and run like any model.

python examples/own_relax.py [PLATFORM [TARGET]]      # host, linux-aarch64, …; cpu, opencl, adreno
"""

from __future__ import annotations

import sys

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import adt


@I.ir_module
class Module:
    """A convolution with a bias, what is below -1 or above 6 cut off."""

    @R.function
    def main(
        x: R.Tensor((1, 3, 32, 32), "float32"),
        weight: R.Tensor((16, 3, 3, 3), "float32"),
        bias: R.Tensor((1, 16, 1, 1), "float32"),
    ) -> R.Tensor((1, 16, 32, 32), "float32"):
        with R.dataflow():
            convolved = R.nn.conv2d(x, weight, padding=1)
            biased = R.add(convolved, bias)
            cut = R.clip(biased, -1.0, 6.0)
            R.output(cut)
        return cut


@T.prim_func(private=True, s_tir=True)
def own_clip(a: T.Buffer((1, 16, 32, 32), "float32"), b: T.Buffer((1, 16, 32, 32), "float32")):
    """Return *a* clipped: the pass puts this kernel in; it is scheduled for the target like any other."""
    for i, j, k, m in T.grid(1, 16, 32, 32):
        with T.sblock("clip"):
            vi, vj, vk, vm = T.axis.remap("SSSS", [i, j, k, m])
            b[vi, vj, vk, vm] = T.min(T.max(a[vi, vj, vk, vm], T.float32(-1)), T.float32(6))


@tvm.transform.module_pass(opt_level=0, name="OwnClip")
def use_own_clip(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Compute each clip by the kernel above."""

    @relax.expr_functor.mutator
    class Mutator(relax.PyExprMutator):
        def visit_call_(self, call: relax.Call) -> relax.Expr:
            if getattr(call.op, "name", "") != "relax.clip":
                return super().visit_call_(call)
            kernel = self.builder_.add_func(own_clip, "own_clip")
            return relax.call_tir(kernel, [self.visit_expr(call.args[0])], call.struct_info)

    mutator = Mutator(module)
    mutator.builder_.update_func(module.get_global_var("main"), mutator.visit_expr(module["main"]))
    return mutator.builder_.get()


def main(platform: str = "host", target: str = "cpu") -> None:
    """Compile for *platform*, compare with TVM's own plain build of the module without the pass, and run."""
    random = np.random.default_rng(0)
    params = {
        "weight": random.standard_normal((16, 3, 3, 3), dtype=np.float32),
        "bias": random.standard_normal((1, 16, 1, 1), dtype=np.float32),
    }
    package = adt.compile(
        Module, params=params, passes=[use_own_clip], platform=platform, target=target, out=f"own-{platform}"
    )
    x = random.standard_normal((1, 3, 32, 32), dtype=np.float32)
    outputs = adt.run(package.path, inputs={"x": x}).outputs
    result = adt.verify(package.path)
    right = "right" if result.verification.passed else "WRONG"
    lines = [
        *(f"kernel {kernel.name}" for kernel in package.manifest.kernels),
        *(f"output {name} {array.shape}" for name, array in outputs.items()),
        f"against {result.reference_what}: {right}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
