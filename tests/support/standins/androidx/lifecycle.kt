// STAND-IN, not AndroidX: what generated code uses of androidx.lifecycle, written from the signatures of 2.10.0-beta01
// and 2.11.0-beta01 in the project's repository (lifecycle/lifecycle-common, -runtime and -viewmodel, api/*.txt).
// View models run, on the dispatcher [main] in the place of Dispatchers.Main.immediate; nothing else does.
package androidx.lifecycle

import android.app.Application
import kotlinx.coroutines.CoroutineDispatcher
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.cancel

abstract class LifecycleCoroutineScope internal constructor() : CoroutineScope

val LifecycleOwner.lifecycleScope: LifecycleCoroutineScope get() = error("of $lifecycle")

suspend fun LifecycleOwner.repeatOnLifecycle(
    state: Lifecycle.State,
    block: suspend CoroutineScope.() -> Unit,
): Unit = error("$lifecycle $state $block")

var main: CoroutineDispatcher = Dispatchers.Default

abstract class ViewModel {
    internal val scope = CoroutineScope(SupervisorJob() + main)

    protected open fun onCleared() {}

    internal fun clear() {
        scope.cancel()
        onCleared()
    }
}

val ViewModel.viewModelScope: CoroutineScope get() = scope

open class AndroidViewModel(private val application: Application) : ViewModel() {
    @Suppress("UNCHECKED_CAST")
    open fun <T : Application> getApplication(): T = application as T
}

class ViewModelProvider private constructor() {
    interface Factory
}

open class ViewModelStore {
    private val viewModels = mutableMapOf<String, ViewModel>()

    /** Only for the library itself, there. */
    fun put(key: String, viewModel: ViewModel) {
        viewModels[key] = viewModel
    }

    fun clear() {
        viewModels.values.forEach { it.clear() }
        viewModels.clear()
    }
}

interface ViewModelStoreOwner {
    val viewModelStore: ViewModelStore
}
