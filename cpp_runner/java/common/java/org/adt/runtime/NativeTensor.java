package org.adt.runtime;

import java.nio.ByteBuffer;

/**
 * An array that a run left in the runtime's memory or a device's. It is there until it is closed,
 * or until nobody has it or a buffer of it any more.
 */
final class NativeTensor {
    /** Lives as long as the array is to: every view of a buffer keeps that buffer. */
    private final Object owner;
    private final NativeHandle handle;
    /** Null: in a device's memory, and not read yet. */
    private ByteBuffer array;
    /** It is a copy, because the array itself is in memory of Java's that may change, or go. */
    private boolean separate;

    NativeTensor(String name, long tensor) {
        array = NativeRunner.tensorMemory(tensor);
        owner = array == null ? this : array;
        handle = new NativeHandle("output " + name, owner, tensor, null, NativeRunner::freeTensor);
    }

    /** The array of so many bytes where it lies; one in a device's memory is read, once. */
    synchronized ByteBuffer array(int size) {
        long tensor = handle.enter();
        try {
            if (array == null) {
                ByteBuffer copy = NativeRunner.allocate(size);
                NativeRunner.check(NativeRunner.copyTensor(tensor, copy, size));
                array = copy;
            }
            return array.asReadOnlyBuffer();
        } finally {
            handle.leave();
        }
    }

    /** Make a copy if the array is one of these: an input that the model hands through. */
    synchronized void separate(ByteBuffer[] inputs, int size) {
        for (ByteBuffer input : inputs) {
            if (input != null && array != null && NativeRunner.overlap(array, input)) {
                array = null;
                array(size);
                separate = true;
                return;
            }
        }
    }

    /** Let it be a model's input. False: that cannot read it where it lies. */
    boolean set(long runner, int entry, int input) {
        long tensor = handle.enter();
        try {
            if (separate || !NativeRunner.reads(runner, tensor)) {
                return false;
            }
            NativeRunner.check(NativeRunner.setTensor(runner, entry, input, tensor));
            return true;
        } finally {
            handle.leave();
        }
    }

    /** Do something while nobody can release it. */
    void hold(Runnable work) {
        handle.enter();
        try {
            work.run();
        } finally {
            handle.leave();
        }
    }

    void close() {
        handle.closeNow();
    }
}
