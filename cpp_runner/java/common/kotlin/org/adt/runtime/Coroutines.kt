package org.adt.runtime

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.CoroutineDispatcher
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.ensureActive
import kotlinx.coroutines.withContext

/** Load a model by [work]; close it when nobody gets it: a cancelled `withContext` drops its result. */
public suspend fun <T : AutoCloseable> loadOrClose(dispatcher: CoroutineDispatcher, work: () -> T): T {
    var model: T? = null
    try {
        return withContext(dispatcher) { work().also { model = it } }
    } catch (error: CancellationException) {
        model?.close()
        throw error
    }
}

/** Run an entry of a package; no thread of a dispatcher waits for it. It is for the generated functions. */
public suspend fun NativeRunner.runEntry(entry: Int, inputs: Array<Tensor>, outputs: Array<Tensor>) {
    try {
        awaitRun(entry, inputs, outputs)
    } catch (error: IllegalStateException) {
        // Closed: by who cancelled the coroutine first, as in a ViewModel's onCleared(), and then that is why.
        currentCoroutineContext().ensureActive()
        throw error
    }
}

private suspend fun NativeRunner.awaitRun(entry: Int, inputs: Array<Tensor>, outputs: Array<Tensor>) {
    val over = CompletableDeferred<Unit>()
    val run = start(entry, inputs, outputs) { error ->
        if (error == null) over.complete(Unit) else over.completeExceptionally(error)
    }
    try {
        over.await()
    } catch (error: CancellationException) {
        run.cancel()
        withContext(NonCancellable) { over.join() } // the arrays are the run's until then
        NativeRunner.release(outputs)
        throw error
    }
}
