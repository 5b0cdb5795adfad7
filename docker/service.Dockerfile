# The service: web server, tasks, migrations and the command `gprojci`. No torch: of the suite it imports the contract.
FROM python:3.12.11-slim-trixie AS build
WORKDIR /source
RUN python -m venv /opt/gprojci
ENV PATH=/opt/gprojci/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY constraints.txt ./
COPY kernels/suite kernels/suite
COPY dashboards dashboards
COPY migrations migrations
COPY service service
# Dependencies and members apart: pip would otherwise follow the suite to torch.
RUN python -c "import tomllib; p = [tomllib.load(open(name + '/pyproject.toml', 'rb'))['project'] for name in ('dashboards', 'service')]; print(*(line for part in p for line in part['dependencies'] + part.get('optional-dependencies', {}).get('tracing', []) if not line.startswith('gprojci-')), sep='\n')" > requirements.txt \
    && pip install --constraint constraints.txt --requirement requirements.txt \
    && pip install --no-deps ./kernels/suite ./dashboards ./service \
    && python -c "import gprojci_service.cli, importlib.util as i; assert i.find_spec('torch') is None"

FROM python:3.12.11-slim-trixie
# pg_dump and pg_restore for `gprojci backup`; Debian 13 has those of PostgreSQL 17, which compose runs.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends postgresql-client \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --system --user-group --uid 10001 --home-dir /nonexistent --shell /usr/sbin/nologin gprojci \
    && install --directory --owner 10001 --group 10001 /var/lib/gprojci/uploads /var/backups/gprojci
COPY --from=build /opt/gprojci /opt/gprojci
ENV PATH=/opt/gprojci/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /tmp
EXPOSE 8000
CMD ["uvicorn", "--factory", "gprojci_service.app:create_from_environment", "--host", "0.0.0.0", "--port", "8000"]
