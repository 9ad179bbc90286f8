# %% [markdown]
# # A module, a pass and a kernel of your own
#
#     python examples/own_relax.py [PLATFORM [TARGET]]
#
# You write a Relax module by hand, replace one of its operators by your own kernel in a pass of your own, and compile, verify and
# run the result like any model. PLATFORM is `host`, `linux-aarch64`, …; TARGET is `cpu`, `opencl`, `adreno`. The expected output:
#
#     kernel fused_conv_blocks_add
#     kernel own_clip
#     kernel unpack_blocks
#     output output (1, 16, 32, 32)
#     against the same model by TVM on this machine's CPU: right

# %%
from __future__ import annotations

import sys
import tempfile

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import adt

# %% [markdown]
# ## The module
#
# A convolution with a bias, clipped to the range from -1 to 6.


# %%
@I.ir_module
class Module:
    """Convolution with a bias and a clip."""

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


# %% [markdown]
# ## The kernel
#
# It needs no schedule: adt schedules it for the target like any other kernel.


# %%
@T.prim_func(private=True, s_tir=True)
def own_clip(a: T.Buffer((1, 16, 32, 32), "float32"), b: T.Buffer((1, 16, 32, 32), "float32")):
    """Clip *a* to the range from -1 to 6."""
    for i, j, k, m in T.grid(1, 16, 32, 32):
        with T.sblock("clip"):
            vi, vj, vk, vm = T.axis.remap("SSSS", [i, j, k, m])
            b[vi, vj, vk, vm] = T.min(T.max(a[vi, vj, vk, vm], T.float32(-1)), T.float32(6))


# %% [markdown]
# ## The pass


# %%
@tvm.transform.module_pass(opt_level=0, name="OwnClip")
def use_own_clip(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Replace each clip by a call of the kernel."""

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


# %% [markdown]
# ## Compile, run and verify
#
# Parameters without a value (here `x`) are inputs. `adt.verify` compares with TVM's plain build of the module without the pass.


# %%
def main(platform: str = "host", target: str = "cpu") -> None:
    """Compile for *platform* and *target*, run, verify, and print the result."""
    random = np.random.default_rng(0)
    params = {
        "weight": random.standard_normal((16, 3, 3, 3), dtype=np.float32),
        "bias": random.standard_normal((1, 16, 1, 1), dtype=np.float32),
    }
    x = random.standard_normal((1, 3, 32, 32), dtype=np.float32)
    with tempfile.TemporaryDirectory() as work:
        package = adt.compile(
            Module,
            params=params,
            passes=[use_own_clip],
            platform=platform,
            target=target,
            out=f"{work}/package",
        )
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
