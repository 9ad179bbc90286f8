package org.adt.runtime

/** Number of native objects that are not released. */
fun handleCount(): Int = NativeHandle.count()

/** Wait until what was closed is released. */
fun awaitReleases() = NativeHandle.awaitReleases()

/** Ask for a run; the function that is returned cancels it. */
fun startRun(
    runner: NativeRunner, inputs: Array<Tensor>, outputs: Array<Tensor>, over: (Throwable?) -> Unit,
): () -> Unit = runner.start(0, inputs, outputs, over)::cancel
