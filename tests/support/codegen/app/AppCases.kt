package org.adt.runtime

import android.app.Application
import android.content.res.AssetManager
import android.graphics.Rect
import androidx.camera.core.ImageInfo
import androidx.camera.core.ImageProxy
import androidx.lifecycle.ViewModelStore
import com.example.vision.app.MainViewModel
import java.io.File
import java.nio.ByteBuffer
import java.util.concurrent.LinkedBlockingQueue
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicInteger
import kotlin.coroutines.CoroutineContext
import kotlinx.coroutines.CoroutineDispatcher
import kotlinx.coroutines.runBlocking

/** The sample's view model, between a camera and a screen that come and go: `AppCasesKt CACHE`. */
fun main(arguments: Array<String>) {
    androidx.lifecycle.main = Main
    val application = object : Application() {
        override fun getAssets() = AssetManager()

        override fun getCodeCacheDir() = File(arguments[0])
    }
    val uncaught = LinkedBlockingQueue<Throwable>()
    Thread.setDefaultUncaughtExceptionHandler { _, error -> uncaught.put(error) } // which ends an application
    frames(application)
    clearedBeforeTheRun(application)
    val points = generateSequence(0) { it + 1 }.takeWhile { isClearedAfter(it, application) }.count()
    check(points >= 4) { points } // before and after the load, and around a run
    check(uncaught.isEmpty()) { uncaught.map { it.stackTraceToString() } }
    println("cleared at $points points")
    println("done")
}

/** The main thread: does what was dispatched one piece at a time, when it is asked to. */
private object Main : CoroutineDispatcher() {
    private val pieces = LinkedBlockingQueue<Runnable>()

    override fun dispatch(context: CoroutineContext, block: Runnable) = pieces.put(block)

    /** False: nothing came for some time. */
    fun step(ms: Long = 500): Boolean = pieces.poll(ms, TimeUnit.MILLISECONDS)?.run() != null

    fun until(what: () -> Boolean) {
        while (!what()) check(step(60_000)) { "nothing happens any more" }
    }

    fun finish() {
        while (step()) continue
    }
}

/** A camera's frame of 64 by 48, grey, as YUV_420_888 with padded rows. */
private class Frame(private val level: Int, private val looked: () -> Unit = {}) : ImageProxy {
    val closed = AtomicInteger()

    override fun close() {
        closed.incrementAndGet()
    }

    override fun getWidth() = 64

    override fun getHeight() = 48

    override fun getCropRect() = Rect().apply { left = 8; right = 56; bottom = 48 }

    override fun getImageInfo() = ImageInfo { 90 }.also { looked() }

    override fun getPlanes() = Array<ImageProxy.PlaneProxy>(3) { Plane(if (it == 0) 80 else 40, 48, if (it == 0) level else 128) }

    private class Plane(private val row: Int, rows: Int, level: Int) : ImageProxy.PlaneProxy {
        private val data = ByteBuffer.allocateDirect(row * rows).apply { while (hasRemaining()) put(level.toByte()) }.rewind() as ByteBuffer

        override fun getRowStride() = row

        override fun getPixelStride() = 1

        override fun getBuffer() = data
    }
}

/** Each frame is closed once, when its run is over; what is seen of it is what the model says of it. */
private fun frames(application: Application) {
    val store = ViewModelStore()
    val app = MainViewModel(application).also { store.put("", it) }
    val early = Frame(0).also(app::analyze)
    Main.until { early.closed.get() == 1 }
    Main.until { app.screen.value.model != null }
    check(app.screen.value.problem.isEmpty()) { app.screen.value.problem }
    val unseen = Frame(0).also(app::analyze) // the camera is off
    Main.until { unseen.closed.get() == 1 }
    check(app.screen.value.result.isEmpty())
    app.useCamera()
    val results = listOf(0, 255, 0).map { level ->
        val frame = Frame(level).also(app::analyze)
        Main.until { frame.closed.get() == 1 }
        app.screen.value.result
    }
    check(results[0] == results[2] && results[0] != results[1]) { results }
    check(app.screen.value.modelMs > 0)
    store.clear()
    expectNothing(listOf(early, unseen))
    val late = Frame(0).also(app::analyze) // on its way when the screen went
    expectNothing(listOf(late))
}

/** The model is closed after a frame has become an input, and before it is run. */
private fun clearedBeforeTheRun(application: Application) {
    val store = ViewModelStore()
    val app = MainViewModel(application).also { store.put("", it) }
    app.useCamera()
    Main.until { app.screen.value.model != null }
    val frame = Frame(0, store::clear).also(app::analyze)
    expectNothing(listOf(frame))
}

/** The screen goes after [count] steps of the main thread, with one frame on its way and one at work. */
private fun isClearedAfter(count: Int, application: Application): Boolean {
    val store = ViewModelStore()
    val app = MainViewModel(application).also { store.put("", it) }
    app.useCamera()
    repeat(count) {
        if (app.screen.value.model == null) Main.step() // a load takes its time
    }
    val frames = List(3) { Frame(it).also(app::analyze) }
    repeat(count) { Main.step() }
    val before = frames.any { it.closed.get() == 0 }
    store.clear()
    expectNothing(frames)
    return before
}

private fun expectNothing(frames: List<Frame>) {
    Main.finish()
    runBlocking { NativeHandle.awaitReleases() }
    check(NativeHandle.count() == 0) { "${NativeHandle.count()} handles" }
    check(frames.all { it.closed.get() == 1 }) { frames.map { it.closed } }
}
