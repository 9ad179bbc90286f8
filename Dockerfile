# adt in a container: docker build -t adt . && docker run --rm -it --network host adt
#
# --network host: the adb server of the host is used, by its own port on 127.0.0.1, and with it the host's phones;
# what it forwards ends on the host's loopback, which is then the container's, too (RPC needs that). For another
# port of the host's server: -e ADB_SERVER_SOCKET=tcp:5038. Start it on the host first (adb start-server).
#
# Without a server on the host give the container the cable: adb kill-server there, then
# docker run --rm -it --privileged -v /dev/bus/usb:/dev/bus/usb -v adt-keys:/root/.android adt
#
# -v $ANDROID_NDK_HOME:/ndk -e ANDROID_NDK_HOME=/ndk brings the NDK, -v adt-cache:/root/.cache/adt keeps what is
# built, --privileged lets the virtual device make its namespaces.
FROM debian:bookworm
SHELL ["/bin/bash", "-c"]
WORKDIR /root/adt
COPY . .
RUN source scripts/setup.sh && \
  need_packages g++ g++-aarch64-linux-gnu ocl-icd-libopencl1 pocl-opencl-icd python3-venv qemu-user-static && \
  install_adt "[demo,image,tune]"
ENV PATH=/root/adt/.venv/bin:$PATH
CMD ["bash"]
