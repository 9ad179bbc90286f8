package com.example.vision

import java.io.File
import java.util.concurrent.Executors
import java.util.concurrent.LinkedBlockingQueue
import java.util.concurrent.TimeUnit
import kotlin.coroutines.CoroutineContext
import kotlinx.coroutines.CoroutineDispatcher
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Job
import kotlinx.coroutines.asCoroutineDispatcher
import kotlinx.coroutines.async
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.joinAll
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.yield
import org.adt.runtime.AdtException
import org.adt.runtime.awaitReleases
import org.adt.runtime.handleCount
import org.adt.runtime.startRun

/** What is left of cancelled coroutines: `CancellationCasesKt CASE MODELS [COUNT]`. */
fun main(arguments: Array<String>) {
    val models = File(arguments[1])
    when (arguments[0]) {
        "points" -> {
            everyPoint(models)
            cancelledRuns(models)
            cancelledAtWork(models)
            nobodyWaits(models)
            garbage(models)
        }
        "cycles" -> cycles(File(models, "small"), arguments[2].toInt())
    }
    println("done")
}

/** Does what was dispatched one piece at a time, on the thread that asks for it. */
private class Steps(private val pieces: LinkedBlockingQueue<Runnable>) : CoroutineDispatcher() {
    override fun dispatch(context: CoroutineContext, block: Runnable) = pieces.put(block)

    /** False: there is none, and [job] is over. */
    fun step(job: Job): Boolean {
        while (true) {
            pieces.poll(1, TimeUnit.MILLISECONDS)?.let {
                it.run()
                return true
            }
            if (job.isCompleted && pieces.isEmpty()) return false
        }
    }
}

/** A coroutine that loads and runs is cancelled behind each of its steps in turn. */
private fun everyPoint(models: File) {
    fun isCancelledAfter(count: Int): Boolean {
        val pieces = LinkedBlockingQueue<Runnable>()
        val (outer, inner) = Steps(pieces) to Steps(pieces) // withContext dispatches to another one only
        val job = CoroutineScope(outer).launch {
            loadDetector(File(models, "detector"), dispatcher = inner).use { model ->
                val inputs = Detector.Inputs()
                repeat(2) { model.runSuspending(inputs).close() }
            }
        }
        repeat(count) { outer.step(job) }
        val before = !job.isCompleted
        job.cancel()
        while (outer.step(job)) continue
        awaitReleases()
        check(handleCount() == 0) { "cancelled after $count steps: ${handleCount()} handles" }
        check(job.isCancelled == before)
        return before
    }
    val points = generateSequence(0) { it + 1 }.takeWhile(::isCancelledAfter).count()
    check(points >= 4) { points } // before and after the load, and in two runs
    println("cancelled at $points points")
}

/** The runs behind a cancelled one are as they were; one that has not begun never does. */
private fun cancelledRuns(models: File) = runBlocking {
    Detector.load(File(models, "detector")).use { model ->
        val inputs = Detector.Inputs()
        val expected = model.run(inputs).use { it.targetLabel.toArray() }
        repeat(50) { round ->
            val jobs = List(3) { launch { model.runSuspending(inputs).close() } }
            val last = async { model.runSuspending(Detector.Inputs()).use { it.targetLabel.toArray() } }
            repeat(1 + round % 3) { yield() }
            jobs.forEach { it.cancel() }
            jobs.joinAll()
            check(expected.contentEquals(last.await())) { "round $round" }
        }
    }
}

/** A run that has begun ends with an error of its own, unless it is over first. */
private fun cancelledAtWork(models: File) {
    Detector.load(File(models, "detector")).use { model ->
        val inputs = Detector.Inputs()
        val errors = LinkedBlockingQueue<Result<Throwable?>>()
        val kinds = generateSequence {
            Detector.Outputs().use { outputs ->
                val cancel = startRun(model.runner, inputs.tensors, outputs.tensors) { errors.put(Result.success(it)) }
                Thread.sleep(1)
                cancel()
                Result.success((errors.take().getOrThrow() as AdtException?)?.kind())
            }
        }
        check(kinds.take(1000).any { it.getOrThrow() == AdtException.Kind.CANCELLED })
    }
}

/** While a run is at work, a dispatcher's only thread is free, and so is the one that closes. */
private fun nobodyWaits(models: File) = runBlocking {
    val model = Detector.load(File(models, "detector"))
    val other = model.session()
    val result = CoroutineScope(coroutineContext + Job()).async { runCatching { model.runSuspending(Detector.Inputs()) } }
    synchronized(model.runner) { // as a run that is at work
        runBlocking {
            other.runSuspending(Detector.Inputs()).use { check(it.targetLabel.elements() == 214) }
        }
        check(model.info().device() == "cpu")
        model.close()
        other.close()
    }
    check(result.await().exceptionOrNull() is IllegalStateException)
    check(runCatching { other.runSuspending(Detector.Inputs()) }.exceptionOrNull() is IllegalStateException)
    awaitReleases()
    check(handleCount() == 0)
}

/** A model that nobody has any more is released by the garbage collector. */
private fun garbage(models: File) {
    repeat(3) { Small.load(File(models, "small")).session() }
    awaitNone()
}

private fun awaitNone() {
    val end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60)
    while (handleCount() > 0) {
        check(System.nanoTime() < end) { "${handleCount()} handles are left" }
        System.gc()
        Thread.sleep(1)
    }
}

/** Loads, runs, is cancelled, closes or forgets to; says what the process holds after each quarter. */
private fun cycles(small: File, count: Int) {
    val thread = Executors.newSingleThreadExecutor()
    val dispatcher = thread.asCoroutineDispatcher()
    val values = floatArrayOf(1f, 2f, 3f, 4f)
    runBlocking {
        repeat(count) { cycle ->
            val job = launch {
                val model = loadSmall(small, dispatcher = dispatcher)
                if (cycle % 100 == 0) return@launch
                val inputs = Small.Inputs().apply { x.set(values) }
                model.use { repeat(cycle % 3) { model.runSuspending(inputs) } } // drops the outputs
            }
            if (cycle % 2 == 0) {
                repeat(cycle / 2 % 5) { yield() }
                job.cancelAndJoin()
            } else {
                job.join()
            }
            if ((cycle + 1) % (count / 4) == 0) usage()
        }
    }
    thread.shutdown()
}

private fun usage() {
    awaitNone()
    while (threads().any { it == "adt-runs" }) Thread.sleep(10) // it ends by itself
    val memory = File("/proc/self/status").readLines().single { it.startsWith("RssAnon:") }
    val maps = File("/proc/self/maps").readLines().size
    val fds = File("/proc/self/fd").list()!!.size
    println("holds fds=$fds tasks=${threads().size} maps=$maps kb=${memory.filter(Char::isDigit)}")
}

private fun threads(): List<String> =
    File("/proc/self/task").listFiles()!!.mapNotNull {
        runCatching { File(it, "comm").readText().trim() }.getOrNull()
    }
