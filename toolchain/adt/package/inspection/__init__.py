"""Description of what went into a package: written below ``inspect/`` while it is compiled, read by `adt
inspect`.

``graph.json``   calls, tensors, storages and device kernels (:mod:`adt.package.inspection.graph`)
``relax.py``     the function ``main`` after all Relax passes, as TVMScript
``tir.py``       the scheduled kernels, as TVMScript
``plain.json.gz`` each kernel before it was scheduled, TIR in TVM's JSON, gzip: any machine can run it
``opencl/*.cl``, ``cuda/*.cu``  the source of each kernel of a GPU
``host.ll.gz``   LLVM IR of the host code, gzip; the assembly is generated from it
``clml/*.json``  subgraphs that CLML computes, likewise of other libraries
"""
