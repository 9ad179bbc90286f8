package org.adt.runtime;

import java.lang.ref.PhantomReference;
import java.lang.ref.ReferenceQueue;
import java.util.HashSet;
import java.util.Set;

/**
 * Native object that a Java object owns. It is released once: when it is closed and nobody uses
 * it any more, or when the object is garbage, and then by a thread for that. (java.lang.ref.Cleaner
 * does the second, and is in Android from API level 33 on.)
 */
final class NativeHandle extends PhantomReference<Object> {
    /** Releases what is at an address. */
    interface Release {
        void release(long address);
    }

    private static final ReferenceQueue<Object> QUEUE = new ReferenceQueue<>();
    /** All that are not released: nobody is told of a reference that is garbage itself. */
    private static final Set<NativeHandle> HANDLES = new HashSet<>();
    /**
     * Number of them that are closed. This and the handles' own state is for who has HANDLES' lock.
     */
    private static int closing;

    static {
        Thread releasing = new Thread(NativeHandle::releaseForever, "adt-release");
        releasing.setDaemon(true);
        releasing.start();
        // The process does not end in the middle of a release.
        Runtime.getRuntime().addShutdownHook(new Thread(NativeHandle::awaitReleases));
    }

    /** Name for messages. */
    private final String name;
    private final long address;
    private final Release release;
    /** Objects that native code may read until then. */
    private final Object kept;
    private int users;
    private boolean closed;
    /** The queue had it while it was used: the last user releases it. */
    private boolean overdue;
    private boolean released;

    NativeHandle(String name, Object owner, long address, Object kept, Release release) {
        super(owner, QUEUE);
        this.name = name;
        this.address = address;
        this.kept = kept;
        this.release = release;
        synchronized (HANDLES) {
            HANDLES.add(this);
        }
    }

    /** The address, to be used until leave(). */
    long enter() {
        synchronized (HANDLES) {
            if (closed) {
                throw new IllegalStateException(name + " is closed");
            }
            users++;
            return address;
        }
    }

    void leave() {
        synchronized (HANDLES) {
            users--;
            if (users > 0) {
                return;
            }
            if (!overdue) {
                if (closed) {
                    enqueue();
                }
                return;
            }
        }
        releaseNow();
    }

    /** Have it released once nobody uses it; this does not wait for that. */
    void close() {
        if (refuse()) {
            enqueue();
        }
    }

    /** Frees the handle on this thread, unless somebody uses it: for quick releases. */
    void closeNow() {
        if (refuse()) {
            releaseNow();
        }
    }

    /**
     * Let nobody enter any more. Return true if it was open and is not used: it is to be released.
     */
    private boolean refuse() {
        synchronized (HANDLES) {
            if (closed || released) {
                return false;
            }
            closed = true;
            closing++;
            return users == 0;
        }
    }

    /** Wait until what was closed is released. */
    static void awaitReleases() {
        boolean interrupted = false;
        synchronized (HANDLES) {
            while (closing > 0) {
                try {
                    HANDLES.wait();
                } catch (InterruptedException later) {
                    interrupted = true;
                }
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** Return the number that are not released. */
    static int count() {
        synchronized (HANDLES) {
            return HANDLES.size();
        }
    }

    private static void releaseForever() {
        while (true) {
            try {
                ((NativeHandle) QUEUE.remove()).releaseUnused();
            } catch (InterruptedException nobodyAsksForIt) {
                continue;
            }
        }
    }

    private void releaseUnused() {
        synchronized (HANDLES) {
            overdue = users > 0;
            if (overdue) {
                return;
            }
        }
        releaseNow();
    }

    private void releaseNow() {
        synchronized (HANDLES) {
            if (released) {
                return; // closed, and garbage at once
            }
            released = true;
        }
        release.release(address);
        synchronized (HANDLES) {
            HANDLES.remove(this);
            closing -= closed ? 1 : 0;
            HANDLES.notifyAll();
        }
    }
}
