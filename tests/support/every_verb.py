"""Program that uses every name of adt, for type checkers (tests/unit/test_requests.py); it is never run."""
# ruff: noqa: T201

from pathlib import Path

import numpy as np

import adt


def build() -> None:
    print(adt.build_target(platform="host", xnnpack=True).bundle.path, adt.explain_build(platform="host")[0])
    print([each.reused for each in adt.build_abis(["arm64-v8a"], layout="jniLibs", out="jni")])
    print(adt.bundles()[0].path, adt.bundles_remove(superseded=True), adt.presets(), adt.source().path)
    print(adt.ndk_env(ndk="ndk")["ANDROID_NDK_HOME"], adt.ndk_list()[0].path, adt.settings().settings.compile)
    print(adt.doctor(["host"]).passed, adt.elf("lib.so", platform="host").files, adt.probe().serial)


def compile_and_run(model: Path) -> None:
    package = adt.compile(
        model, shapes={"x": (1, 3), "batch": 2}, check=True, keep_float32=["exp"], out="pkg"
    )
    path: Path = package.path
    print(adt.explain(model, shapes=["x:1,3"]).problem, adt.networks()[0].name, adt.network("resnet-50"))
    print(adt.compile_kernel([], name="add", out="add.so").path)
    picture = adt.PictureOptions(mean=(0.5,))
    outputs = adt.run(path, images=["cat.png"], picture=picture, run_count=3).outputs
    print(
        adt.run(path, inputs={"x": [1, 2], "y": 3.0, "z": np.zeros(3)}).place, adt.run(path, files=["x.npy"])
    )
    print(adt.rank(outputs, labels=adt.read_labels(Path("labels.txt"))).rows)
    print(
        adt.verify(path, inputs=[{"x": [[1.0]]}]).verification.passed,
        adt.verify_layers(path, calls=(1, 2), all=True).layers,
    )
    bench = adt.bench(path, protocol="quick", inputs={"x": [1.0]})
    speed = bench.record.speed
    ratio = adt.bench_ab(path, "other").ratio
    print(speed and speed.times.p50_ms, ratio and adt.sentence(ratio))
    profile = adt.profile(path, runs=5)
    adt.profile_html(profile, "profile.html")
    adt.profile_trace(profile, Path("trace.json"))
    print(adt.compare_offload(model, offload="xnnpack", platform="host").passed)
    print(adt.quantize(model, out="q.onnx", calibrate=["pictures"], picture=picture).outputs)
    print(adt.up(model, on_plan=print, on_step=print).package.path)


def packages(package: Path) -> None:
    print(adt.inspect(package).sizes(), adt.inspect_diff(package, "other").empty)
    adt.inspect_html(package, "page.html")
    print(adt.package_verify(package).passed, adt.package_split_params(package, "split"))
    print(adt.package_merge("split", "params", out="whole").path)
    print(adt.generate("cpp", [package], out="app", java_package="com.a.b").written)
    print(adt.install(adt.apk(package, java_package="com.a.b").path, run=True).serial)
    trend = adt.report(since="2026-01-01")
    adt.report_html(trend, "report.html")
    print(adt.report_export(trend, "a.json"), adt.report_import("a.json"))


def devices(package: Path) -> None:
    board = adt.emulator_start(name="board", opencl=True)
    device: adt.Device = adt.chosen_device(board.serial)
    print(device.serial, adt.devices()[0].serial, adt.emulator_list(), adt.adb_command(["logcat"]).argv)
    print(adt.deploy([package], dry_run=True).serial, adt.deploy_many(package, serials=["a", "b"]).all)
    print(adt.clean(keep=1).removed, adt.clean_many(serials=["a"]).exit_code, adt.tracker_start().address)
    print(
        adt.rpc_start(serial="a", key="k").ready_line, adt.rpc_status().servers, adt.tracker_status().running
    )
    print(adt.rpc_serve(board="pi@board").commands, adt.rpc_serve_here(key="k"))
    with adt.rpc_session(key="k") as remote, adt.open_remote(package, serial="a") as opened:
        print(remote, opened.model.outputs())
    print(adt.rpc_stop(all=True), adt.tracker_stop().running, adt.emulator_stop("board").running)


def tuning(model: Path) -> None:
    try:
        print(adt.tune(model, shapes={"x": [1, 3]}, db="db", trials=8).tasks)
    except adt.errors.AdtError as error:
        print(error.what, error.remedy, error.exit_code)
    print(adt.db_stats("db").records, adt.db_verify("db").passed, adt.db_prune("db", keep=3, dry_run=True))
    print(adt.db_merge(["a", "b"], into="db"), adt.db_export("db", metaschedule="ms").out)
    print(adt.db_import("ms", into="db", device="Adreno"), adt.db_publish("db", "db.tar.gz").sha256)
    print(adt.db_fetch("db.tar.gz", out="db").sha256)
