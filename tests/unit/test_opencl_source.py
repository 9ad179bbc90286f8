"""Changes to the source of a kernel for OpenCL."""

from adt.compiler.passes.lowering import finished, identifier

OTHER = "__kernel void other_kernel(__global float* restrict x);\n"


def test_the_other_kernels_are_not_declared() -> None:
    source = OTHER + "__kernel void own_kernel(__global float* restrict x) {\n  x[0] = 1;\n}\n"

    assert finished(source) == source.removeprefix(OTHER)


def test_places_have_names() -> None:
    source = (
        "__kernel void own_kernel(__global float* restrict x) {\n"
        "  x[(((convert_int(get_group_id(1))) * 8) + (convert_int(get_local_id(0))))] = 1;\n"
        "  x[(convert_int(get_group_id(1)))] = 2;\n}\n"
    )

    assert finished(source) == (
        "__kernel void own_kernel(__global float* restrict x) {\n"
        "  const int adt_group1 = get_group_id(1);\n"
        "  const int adt_local0 = get_local_id(0);\n"
        "  x[((adt_group1 * 8) + adt_local0)] = 1;\n"
        "  x[adt_group1] = 2;\n}\n"
    )


def test_equal_lanes_are_one() -> None:
    lanes = "((float4)(1.5e+00f, 1.5e+00f, 1.5e+00f, 1.5e+00f)), ((int4)(0, 0, 0, 1))"
    bits = ", ".join(["as_float(-12)"] * 4)

    assert finished(lanes) == "((float4)(1.5e+00f)), ((int4)(0, 0, 0, 1))"
    assert finished(f"((float4)({bits}))") == "((float4)(as_float(-12)))"


def test_bits_are_taken_for_numbers_of_another_type_by_name() -> None:
    """Convert by name: TVM takes a pointer, for which a compiler would keep the bits in memory."""
    assert finished("y = (*(float4 *)(&(v_1))) * x;") == "y = as_float4(v_1) * x;"


def test_only_what_multiplies_words_has_them() -> None:
    assert "dot_4x8packed_us_int" in finished("y = adt_dots(x, w, y);\n")
    assert "dot_4x8packed_us_int" not in finished("y = dot(x, w);\n")


def test_names_are_short_and_none_of_opencl() -> None:
    assert [identifier(name) for name in ("max_local", "conv_blocks_local_rf_shared_local", "local_1")] == [
        "max_",
        "conv_rf_",
        "local_1",
    ]
    assert identifier("x/blocks:0") == "x_0_"
