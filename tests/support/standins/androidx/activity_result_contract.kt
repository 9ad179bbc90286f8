// STAND-IN, not AndroidX: as activity.kt.
package androidx.activity.result.contract

import android.net.Uri
import androidx.activity.result.PickVisualMediaRequest

abstract class ActivityResultContract<I, O>

class ActivityResultContracts private constructor() {
    open class OpenDocument : ActivityResultContract<Array<String>, Uri?>()

    class RequestPermission : ActivityResultContract<String, Boolean>()

    open class PickVisualMedia : ActivityResultContract<PickVisualMediaRequest, Uri?>() {
        sealed interface VisualMediaType

        object ImageOnly : VisualMediaType

        object ImageAndVideo : VisualMediaType

        abstract class DefaultTab private constructor() {
            object PhotosTab : DefaultTab()
        }
    }
}
