# The image of operator, worker and command line: one virtual environment on a slim base, no root, no
# build tools. Versions and hashes come from uv.lock; `docker build -t duepoint:dev .`

# With Kafka: `docker build --build-arg EXTRAS=kafka -t duepoint:kafka .`
# With Kafka and traces: `docker build --build-arg EXTRAS="kafka otel" -t duepoint:full .`

# The digest of the list for all architectures belongs beside the tag: `python -m tools.release.bases --write` looks it up.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
ARG EXTRAS=
WORKDIR /src
COPY tools/uv-bin.lock pyproject.toml uv.lock ./
# What runs, and the one tool that builds, each with its hashes.
RUN pip install --no-cache-dir --require-hashes --only-binary :all: --requirement uv-bin.lock \
 && uv export --no-cache --quiet --frozen --no-emit-project --no-dev $(printf -- '--extra %s ' cli ${EXTRAS}) > runtime.lock \
 && uv export --no-cache --quiet --frozen --only-group build > build.lock
# The environment gets no pip of its own: the base's pip fills it from outside.
RUN python -m venv --without-pip /opt/duepoint \
 && pip --python /opt/duepoint/bin/python install --no-cache-dir --no-compile --require-hashes \
      --only-binary :all: --requirement runtime.lock \
 && pip install --no-cache-dir --require-hashes --only-binary :all: --requirement build.lock
COPY README.md LICENSE ./
COPY operator operator
# Bytecode says by its hash what it was made of: nothing can be compiled where the root is read-only,
# and the time of a file may be another one in the image.
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir dist . \
 && pip --python /opt/duepoint/bin/python install --no-cache-dir --no-compile --no-deps dist/*.whl \
 && find /opt/duepoint -depth -type d -name tests -exec rm -r {} + \
 && /opt/duepoint/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/duepoint/lib \
 && /opt/duepoint/bin/duepoint --help > /dev/null

FROM ${BASE}
LABEL org.opencontainers.image.title="duepoint" \
      org.opencontainers.image.description="Schedules for Kubernetes that are never early and never lost, and say why one did not run." \
      org.opencontainers.image.licenses="Apache-2.0"
# The user has a name, which libraries ask for; it owns nothing and cannot log in.
RUN pip uninstall --yes --quiet --root-user-action=ignore pip \
 && echo 'duepoint:x:65532:65532::/nonexistent:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'duepoint:x:65532:' >> /etc/group
COPY --from=build /opt/duepoint /opt/duepoint
# The bases come without bytecode of the standard library: this leaves it of what the processes use.
RUN /opt/duepoint/bin/python -c "import duepoint.app, duepoint.cli.processes, \
      duepoint.controller.leadership, duepoint.controller.watching.kopfthread, \
      duepoint.httpapi.service"
ENV PATH=/opt/duepoint/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["duepoint"]
