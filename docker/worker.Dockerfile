# A measuring worker. BASE decides the device: the CUDA image for GPUs, a plain Python-capable Debian for CPUs.
ARG BASE=nvidia/cuda:13.0.1-devel-ubuntu24.04
FROM ${BASE}
ARG TORCH_INDEX=
# git fetches the commits; unshare and setpriv (util-linux) make the sandbox; a compiler builds subjects that need one.
# Of these the distribution has one version at a time, so a pin would break with its next security fix.
# hadolint ignore=DL3008
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        build-essential ca-certificates git python3 python3-dev python3-venv util-linux \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
RUN python3 -m venv /opt/gprojci
ENV PATH=/opt/gprojci/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1
COPY constraints.txt ./
COPY kernels/suite kernels/suite
COPY workers workers
RUN pip install --no-cache-dir --constraint constraints.txt \
        ${TORCH_INDEX:+--extra-index-url ${TORCH_INDEX}} ./kernels/suite ./workers \
    && rm -rf /source/kernels /source/workers
RUN useradd --system --user-group --uid 10002 --home-dir /var/cache/gprojci --shell /usr/sbin/nologin worker \
    && install -d -o worker -g worker /var/cache/gprojci /run/lock/gprojci
ENV PYTHONUNBUFFERED=1 HOME=/var/cache/gprojci GPROJCI_CACHE_DIR=/var/cache/gprojci
VOLUME /var/cache/gprojci
USER 10002
WORKDIR /var/cache/gprojci
CMD ["gprojci-worker"]
