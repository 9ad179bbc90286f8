package org.adt.runtime;

/** Treatment of a picture whose proportions are not the input's. */
public enum PictureFit {
    /** They change. */
    STRETCH,
    /** Its middle is taken. */
    CROP,
    /**
     * It is shown whole, in the middle, with a grey border (level 114, as YOLO is trained with).
     */
    LETTERBOX
}
