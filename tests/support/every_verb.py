"""Program that uses every name of adt, for type checkers (tests/unit/test_requests.py); it is never run."""

# ruff: noqa: T201
# fmt: off
from pathlib import Path

import numpy as np

import adt

model, picture = Path("model.onnx"), adt.PictureOptions(mean=(0.5,))
try:
    print(adt.build_target(platform="host", xnnpack=True).bundle.path, adt.explain_build(platform="host")[0])
except adt.errors.AdtError as error:
    print(error.what, error.remedy, error.exit_code)
print([each.reused for each in adt.build_abis(["arm64-v8a"], layout="jniLibs", out="jni")], adt.bundles()[0].path)
print(adt.bundles_remove(superseded=True), adt.presets(), adt.source().path, adt.ndk_env(ndk="ndk")["CC"], adt.ndk_list()[0].path)
print(adt.settings().settings.compile, adt.doctor(["host"]).passed, adt.elf("lib.so", platform="host").files, adt.probe().serial)
print(adt.fetch(adt.RegistryFile("project", "file", "sha256")).name, adt.networks()[0].name, adt.network("resnet-50").name)
package = adt.compile(model, shapes={"x": (1, 3), "batch": 2}, check=True, keep_float32=["exp"], out="pkg")
path: Path = package.path
print(adt.explain(model, shapes=["x:1,3"]).problem, adt.compile_kernel([], name="add", out="add.so").path, adt.run(path, inputs={"x": [1, 2], "y": 3.0, "z": np.zeros(3)}).place, adt.run(path, files=["x.npy"]).report)
outputs = adt.run(path, images=["cat.png"], picture=picture, run_count=3).outputs
print(adt.rank(outputs, labels=adt.read_labels(Path("labels.txt"))).rows, adt.verify(path, inputs=[{"x": [[1.0]]}]).verification.passed, adt.verify_layers(path, calls=(1, 2), all=True).layers)
speed, ratio = adt.bench(path, protocol="quick", inputs={"x": [1.0]}).record.speed, adt.bench_ab(path, "other").ratio
print(speed and speed.times.p50_ms, ratio and adt.sentence(ratio), adt.compare_offload(model, offload="xnnpack").passed)
adt.profile_html(profile := adt.profile(path, runs=5), "profile.html")
adt.profile_trace(profile, Path("trace.json"))
print(adt.quantize(model, out="q.onnx", calibrate=["pictures"], picture=picture).outputs, adt.up(model, on_plan=print).package)
adt.inspect_html(path, "page.html")
print(adt.inspect(path).sizes(), adt.inspect_diff(path, "other").empty, adt.package_verify(path).passed, adt.package_split_params(path, "split"), adt.generate("cpp", [path], out="app", java_package="com.a.b").written)
print(adt.install(adt.apk(path, java_package="com.a.b").path, run=True).serial)
adt.report_html(trend := adt.report(since="2026-01-01"), "report.html")
print(adt.report_export(trend, "a.json"), adt.report_import("a.json"))
device: adt.Device = adt.chosen_device(adt.emulator_start(name="board", opencl=True).serial)
print(device.serial, adt.devices()[0].serial, adt.emulator_list(), adt.adb_command(["logcat"]).argv, adt.deploy([path], dry_run=True).serial, adt.deploy_many(path, serials=["a", "b"]).all)
print(adt.clean(keep=1).removed, adt.clean_many(serials=["a"]).exit_code, adt.tracker_start().address, adt.rpc_start(serial="a", key="k").ready_line, adt.rpc_status().servers, adt.tracker_status().running)
print(adt.rpc_serve(board="pi@board").commands, adt.rpc_serve_here(key="k"))
with adt.rpc_session(key="k") as remote, adt.open_remote(path, serial="a") as opened:
    print(opened.model.outputs())
    with adt.remote_model(remote, adt.package_merge("code", "params", out="whole")) as loaded:
        loaded.run()
print(adt.rpc_stop(all=True), adt.tracker_stop().running, adt.emulator_stop("board").running, adt.tune(model, shapes={"x": [1, 3]}, db="db", trials=8).tasks, adt.db_stats("db").records, adt.db_verify("db").passed)
print(adt.db_prune("db", keep=3, dry_run=True), adt.db_merge(["a", "b"], into="db"), adt.db_export("db", metaschedule="ms").out)
print(adt.db_import("ms", into="db", device="Adreno"), adt.db_publish("db", "db.tar.gz"), adt.db_fetch("db.tar.gz", out="db"))
