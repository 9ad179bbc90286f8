package org.adt.runtime;

import androidx.annotation.NonNull;

/** Failure of a model, with a remedy. */
public final class AdtException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** Kind of failure. */
    public enum Kind {
        /** The caller asked for something that does not exist. */
        USAGE(2),
        /** The package is damaged, or a file of it is missing. */
        PACKAGE(3),
        /** An array does not fit the model's input or output. */
        INPUT(4),
        /** The model was loaded and failed. */
        RUN(5),
        /** The package is for another library, machine or device. */
        MISMATCH(6),
        /** This machine has no such device: use another one. */
        NO_DEVICE(7),
        /** The device does nothing more: close its models and load them again, or use the CPU. */
        DEVICE_LOST(8),
        /** This machine's memory, or the device's: free some, or use a smaller model. */
        OUT_OF_MEMORY(9),
        /** The run was cancelled. */
        CANCELLED(10);

        private final int status;

        Kind(int status) {
            this.status = status;
        }

        static Kind of(int status) {
            for (Kind kind : values()) {
                if (kind.status == status) {
                    return kind;
                }
            }
            return RUN;
        }
    }

    private final Kind kind;
    private final String problem;
    private final String remedy;

    AdtException(Kind kind, String problem, String remedy) {
        super(problem + " (" + remedy + ")");
        this.kind = kind;
        this.problem = problem;
        this.remedy = remedy;
    }

    /** Return the kind of failure. */
    @NonNull public Kind kind() {
        return kind;
    }

    /** Return what went wrong; {@link #getMessage()} is this and the remedy. */
    @NonNull public String problem() {
        return problem;
    }

    /** Return what can be done about it. */
    @NonNull public String remedy() {
        return remedy;
    }
}
