// STAND-IN, not AndroidX: as activity.kt.
package androidx.activity.result

import androidx.activity.result.contract.ActivityResultContract
import androidx.activity.result.contract.ActivityResultContracts.PickVisualMedia

fun interface ActivityResultCallback<O> {
    fun onActivityResult(result: O)
}

interface ActivityResultCaller {
    fun <I, O> registerForActivityResult(
        contract: ActivityResultContract<I, O>,
        callback: ActivityResultCallback<O>,
    ): ActivityResultLauncher<I>
}

abstract class ActivityResultLauncher<I> {
    open fun launch(input: I): Unit = TODO()
}

class PickVisualMediaRequest internal constructor()

fun PickVisualMediaRequest(
    mediaType: PickVisualMedia.VisualMediaType = PickVisualMedia.ImageAndVideo,
    maxItems: Int = 2,
    isOrderedSelection: Boolean = false,
    defaultTab: PickVisualMedia.DefaultTab = PickVisualMedia.DefaultTab.PhotosTab,
): PickVisualMediaRequest = error("$mediaType $maxItems $isOrderedSelection $defaultTab")
