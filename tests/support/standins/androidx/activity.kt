// STAND-IN, not AndroidX: what generated code uses of androidx.activity:activity, written from the signatures of
// 1.13.0-rc01 in the project's repository (activity/activity/api/1.13.0-rc01.txt). Nothing of it runs.
package androidx.activity

import android.app.Activity
import androidx.activity.result.ActivityResultCallback
import androidx.activity.result.ActivityResultCaller
import androidx.activity.result.ActivityResultLauncher
import androidx.activity.result.contract.ActivityResultContract
import androidx.lifecycle.Lifecycle
import androidx.lifecycle.LifecycleOwner
import androidx.lifecycle.ViewModel
import androidx.lifecycle.ViewModelProvider
import androidx.lifecycle.ViewModelStore
import androidx.lifecycle.ViewModelStoreOwner
import androidx.lifecycle.viewmodel.CreationExtras

open class ComponentActivity : Activity(), ActivityResultCaller, LifecycleOwner, ViewModelStoreOwner {
    override fun getLifecycle(): Lifecycle = TODO()

    override val viewModelStore: ViewModelStore get() = TODO()

    final override fun <I, O> registerForActivityResult(
        contract: ActivityResultContract<I, O>,
        callback: ActivityResultCallback<O>,
    ): ActivityResultLauncher<I> = TODO()
}

inline fun <reified VM : ViewModel> ComponentActivity.viewModels(
    noinline extrasProducer: (() -> CreationExtras)? = null,
    noinline factoryProducer: (() -> ViewModelProvider.Factory)? = null,
): Lazy<VM> = lazy { error("${VM::class} of $this, $extrasProducer, $factoryProducer") }
