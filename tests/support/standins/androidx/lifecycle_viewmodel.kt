// STAND-IN, not AndroidX: as lifecycle.kt.
package androidx.lifecycle.viewmodel

abstract class CreationExtras internal constructor()
