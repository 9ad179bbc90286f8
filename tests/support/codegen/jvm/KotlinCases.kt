import com.example.vision.Small
import com.example.vision.Symbolic
import com.example.vision.a
import com.example.vision.b
import com.example.vision.loadSmall
import com.example.vision.loadSymbolic
import com.example.vision.runSuspending
import com.example.vision.x
import com.example.vision.y
import com.example.vision.z
import java.io.File
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.runBlocking

/** What generated Kotlin does: `KotlinCasesKt MODELS`. */
fun main(arguments: Array<String>) = runBlocking {
    val models = File(arguments[0])
    val expected = floatArrayOf(1f, 2f, 3f)
    loadSmall(File(models, "small")).use { small ->
        val inputs = Small.Inputs().apply { x.set(floatArrayOf(1f, 2f, 3f, 4f)) }
        small.runSuspending(inputs).use { check(near(it.y.toArray(), expected)) { it.y.toArray().toList() } }
        check(near(small.runSuspending(floatArrayOf(1f, 2f, 3f, 4f)), expected))
        val results = (1..20).map {
            async(Dispatchers.Default) { small.runSuspending(floatArrayOf(1f, 2f, 3f, 4f)) }
        }.awaitAll()
        check(results.all { near(it, expected) })
        val threads = File("/proc/self/task").listFiles()!!.map { File(it, "comm").readText().trim() }
        check(threads.count { it == "adt-runner" } == 1) { threads }
    }
    loadSymbolic(File(models, "symbolic")).use { model ->
        val inputs = Symbolic.Inputs().apply {
            a.set(floatArrayOf(1f, 2f), 2)
            b.set(floatArrayOf(3f, 4f), 2)
        }
        check(near(model.runSuspending(inputs).use { it.z.toArray() }, floatArrayOf(4f, 6f)))
    }
    println("done")
}

private fun near(found: FloatArray, wanted: FloatArray): Boolean =
    found.size == wanted.size && found.indices.all { kotlin.math.abs(found[it] - wanted[it]) < 1e-5f }
