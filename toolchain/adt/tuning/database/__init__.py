"""What is known of kernels and schedules, kept so that none of it is lost, and exchanged with others.

:mod:`store` keeps records, :mod:`sqlite_file` has the file that they are in, :mod:`contents` reads it into
memory, and :mod:`interchange` is the form in which databases travel.
"""
