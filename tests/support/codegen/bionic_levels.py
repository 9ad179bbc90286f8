"""From which API level on bionic has functions and variables that glibc has, too, as far as it is later than 21.

Facts from bionic's own symbol maps (libc.map.txt, libm.map.txt and libdl.map.txt of the AOSP's main branch of
March 2025): a build with Debian's compilers finds them all, one with an NDK only those of its API level.
"""

FIRST_LEVEL = {
    22: (
        "__ns_name_compress __ns_name_ntop __ns_name_pack __ns_name_pton __ns_name_skip "
        "__ns_name_uncompress __ns_name_unpack ns_name_compress ns_name_ntop ns_name_pack ns_name_pton "
        "ns_name_skip ns_name_uncompress ns_name_unpack"
    ),
    23: (
        "__cxa_thread_atexit_impl __fbufsize __flbf __fpending __fpurge __freadable __fsetlocking "
        "__fwritable __poll_chk __ppoll_chk __pread64_chk __pread_chk __readlink_chk __readlinkat_chk "
        "__register_atfork _flushlbf cabs cabsf cabsl cacos cacosf cacosh cacoshf carg cargf cargl casin "
        "casinf casinh casinhf catan catanf catanh catanhf ccos ccosf ccosh ccoshf cexp cexpf cimag cimagf "
        "cimagl clearerr_unlocked clock_getcpuclockid conj conjf conjl cproj cprojf cprojl creal crealf "
        "creall csin csinf csinh csinhf csqrt csqrtf csqrtl ctan ctanf ctanh ctanhf error error_at_line "
        "error_message_count error_one_per_line error_print_progname feof_unlocked ferror_unlocked fmemopen "
        "forkpty get_avphys_pages get_nprocs get_nprocs_conf get_phys_pages gethostbyaddr_r "
        "gethostbyname2_r lcong48 lgammal_r login_tty malloc_info mempcpy mkfifoat mkostemp mkostemp64 "
        "mkostemps mkostemps64 mkstemps64 open_memstream open_wmemstream openpty posix_madvise "
        "process_vm_readv process_vm_writev pthread_rwlockattr_getkind_np pthread_rwlockattr_setkind_np "
        "seekdir sethostname sigqueue sigtimedwait sigwaitinfo stderr stdin stdout strcasecmp_l strerror_l "
        "strncasecmp_l telldir wcscasecmp_l wcsncasecmp_l wmempcpy"
    ),
    24: (
        "__fread_chk __getcwd_chk adjtimex clock_adjtime dlvsym fgetpos64 fileno_unlocked fopen64 "
        "freeifaddrs freopen64 fseeko64 fsetpos64 ftello64 getgrgid_r getgrnam_r getifaddrs "
        "if_freenameindex if_nameindex in6addr_any in6addr_loopback lockf lockf64 preadv preadv64 prlimit "
        "pthread_barrier_destroy pthread_barrier_init pthread_barrier_wait pthread_barrierattr_destroy "
        "pthread_barrierattr_getpshared pthread_barrierattr_init pthread_barrierattr_setpshared "
        "pthread_spin_destroy pthread_spin_init pthread_spin_lock pthread_spin_trylock pthread_spin_unlock "
        "pwritev pwritev64 scandirat scandirat64 strchrnul tmpfile64"
    ),
    26: (
        "bsd_signal cacoshl cacosl casinhl casinl catanhl catanl catclose catgets catopen ccoshl ccosl "
        "cexpl clog clogf clogl cpow cpowf cpowl csinhl csinl ctanhl ctanl ctermid endgrent endpwent "
        "futimes futimesat getdomainname getgrent getpwent getsubopt hasmntopt lutimes mallopt mblen msgctl "
        "msgget msgrcv msgsnd nl_langinfo nl_langinfo_l pthread_getname_np quotactl semctl semget semop "
        "semtimedop setdomainname setgrent setpwent shmat shmctl shmdt shmget sighold sigignore sigpause "
        "sigrelse sigset strtod_l strtof_l strtol_l strtoul_l sync_file_range towctrans towctrans_l wctrans "
        "wctrans_l"
    ),
    28: (
        "__freading __free_hook __fwriting __malloc_hook __memalign_hook __realloc_hook aligned_alloc "
        "endhostent endnetent endprotoent fexecve fflush_unlocked fgetc_unlocked fgets_unlocked "
        "fputc_unlocked fputs_unlocked fread_unlocked fwrite_unlocked getentropy getlogin_r getnetent "
        "getprotoent getrandom glob globfree hcreate hcreate_r hdestroy hdestroy_r hsearch hsearch_r iconv "
        "iconv_close iconv_open posix_spawn posix_spawn_file_actions_addclose "
        "posix_spawn_file_actions_adddup2 posix_spawn_file_actions_addopen posix_spawn_file_actions_destroy "
        "posix_spawn_file_actions_init posix_spawnattr_destroy posix_spawnattr_getflags "
        "posix_spawnattr_getpgroup posix_spawnattr_getschedparam posix_spawnattr_getschedpolicy "
        "posix_spawnattr_getsigdefault posix_spawnattr_getsigmask posix_spawnattr_init "
        "posix_spawnattr_setflags posix_spawnattr_setpgroup posix_spawnattr_setschedparam "
        "posix_spawnattr_setschedpolicy posix_spawnattr_setsigdefault posix_spawnattr_setsigmask "
        "posix_spawnp pthread_attr_getinheritsched pthread_attr_setinheritsched "
        "pthread_mutexattr_getprotocol pthread_mutexattr_setprotocol pthread_setschedprio sethostent "
        "setnetent setprotoent strptime_l swab syncfs wcsftime_l wcstod_l wcstof_l wcstol_l wcstoul_l"
    ),
    29: ("__res_randomid getloadavg pthread_sigqueue reallocarray timespec_get"),
    30: (
        "__mempcpy_chk call_once cnd_broadcast cnd_destroy cnd_init cnd_signal cnd_timedwait cnd_wait "
        "memfd_create mlock2 mtx_destroy mtx_init mtx_lock mtx_timedlock mtx_trylock mtx_unlock "
        "pthread_cond_clockwait pthread_mutex_clocklock pthread_rwlock_clockrdlock "
        "pthread_rwlock_clockwrlock renameat2 sem_clockwait statx thrd_create thrd_current thrd_detach "
        "thrd_equal thrd_exit thrd_join thrd_sleep thrd_yield tss_create tss_delete tss_get tss_set"
    ),
    31: ("ffsl ffsll pidfd_getfd pidfd_open pidfd_send_signal process_madvise"),
    33: ("backtrace backtrace_symbols backtrace_symbols_fd preadv2 preadv64v2 pwritev2 pwritev64v2"),
    34: (
        "close_range copy_file_range posix_spawn_file_actions_addchdir_np "
        "posix_spawn_file_actions_addfchdir_np"
    ),
    35: ("_Fork epoll_pwait2 strerrorname_np timespec_getres"),
    36: ("lchmod pthread_getaffinity_np pthread_setaffinity_np qsort_r"),
}
"""API level to names, separated by spaces."""

LEVELS = {name: level for level, names in FIRST_LEVEL.items() for name in names.split()}
"""Name to the API level."""
