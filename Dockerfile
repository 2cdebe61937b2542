# An image with TensorFlow and tfsched's wheel. Build the wheel first: make wheels && docker build -t tfsched .
# For another release that the wheel has a library for: docker build --build-arg TENSORFLOW=2.18.1 .
FROM python:3.12-slim-bookworm

ARG TENSORFLOW=2.21.0
RUN pip install --no-cache-dir "tensorflow-cpu==${TENSORFLOW}"

# The wheel is mounted, not copied, so that no layer keeps it. The extra `control` brings the control service and metrics.
RUN --mount=type=bind,source=dist,target=/dist \
    pip install --no-cache-dir "$(ls /dist/tfsched-*.whl)[control]"

RUN useradd --create-home tfsched
USER tfsched
WORKDIR /home/tfsched

CMD ["tfsched", "doctor"]
