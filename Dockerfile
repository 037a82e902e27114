# A BIDS App: docker run bnt bids_dir output_dir participant|group [--participant_label LABEL ...]; see docs/installing.md.
FROM python:3.11-slim
ARG TORCH_OPTIONS=""

WORKDIR /src
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src ./src
# torch first and by its exact version; TORCH_OPTIONS are options of pip that choose the build (CPU, or a CUDA).
RUN pip install --no-cache-dir $TORCH_OPTIONS --constraint constraints.txt torch==2.13.0 \
 && pip install --no-cache-dir --constraint constraints.txt ".[explain,hub]" \
 && rm -rf /src

WORKDIR /tmp
ENV MPLCONFIGDIR=/tmp/matplotlib
ENTRYPOINT ["bnt", "bids-app"]
CMD ["--help"]
