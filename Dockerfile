# subquad with every extra, for clusters (subquad cluster render kuberay uses it) and single machines:
#
#   docker build -t subquad:0.1.0 .
#   docker run --gpus all --shm-size=8g -v "$PWD/runs:/home/subquad/runs" subquad:0.1.0 subquad train quickstart --local
#
# The base has no CUDA toolkit: torch's wheels bring the CUDA libraries, cuDNN and NCCL. It is NVIDIA's all the same,
# some 100 MB more than plain Ubuntu, as it tells an old driver in one line and makes newer CUDA work on older drivers
# of data centre GPUs. gcc is for Triton, which compiles a small file for each kernel; wget is what KubeRay's probes call.
FROM nvidia/cuda:13.0.1-base-ubuntu24.04 AS base
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev python3-dev python3-venv wget \
 && rm -rf /var/lib/apt/lists/*

# The wheel, and the versions that it was tested with (tool.uv in pyproject.toml).
FROM base AS wheel
WORKDIR /src
COPY LICENSE README.md pyproject.toml ./
COPY pipeline pipeline
COPY plugins plugins
COPY datasets datasets
COPY tune_spaces tune_spaces
RUN python3 -m venv /venv \
 && /venv/bin/pip wheel --quiet --no-deps --wheel-dir /dist . \
 && python3 -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["tool"]["uv"]["constraint-dependencies"], sep="\n")' > /dist/constraints.txt

FROM base
RUN --mount=type=bind,from=wheel,source=/dist,target=/dist \
    python3 -m venv /opt/subquad \
 && /opt/subquad/bin/pip install --no-cache-dir --constraint /dist/constraints.txt "$(ls /dist/subquad-*.whl)[all]"
# A number, so that Kubernetes can see that it is not root. The user may write its home and /tmp, and no code.
RUN useradd --create-home --uid 2000 subquad
USER 2000
WORKDIR /home/subquad
# Ray starts with a token or not at all.
ENV HOME=/home/subquad PATH=/opt/subquad/bin:$PATH PYTHONUNBUFFERED=1 RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
CMD ["subquad", "--help"]
