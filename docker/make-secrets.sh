#!/bin/sh
# Makes the secrets of a new service as files, which docker-compose.yml and the Kubernetes manifests read. Keeps what is
# there, so it may be run again. Usage: docker/make-secrets.sh [DIRECTORY], which is secrets/ where it is left out.
set -eu
directory=${1:-secrets}
mkdir -p "$directory"
# The directory keeps others out; the files are read by the containers' users, which are none of this host's.
chmod 700 "$directory"

random() { head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }
keep() { [ -e "$directory/$1" ] || { printf '%s\n' "$2" > "$directory/$1" && chmod 444 "$directory/$1"; }; }

keep postgres_password "$(random)"
keep redis_password "$(random)"
keep gprojci_webhook_secret "$(random)"
keep gprojci_database_url "postgresql+psycopg://gprojci:$(cat "$directory/postgres_password")@postgres:5432/gprojci"
keep gprojci_broker_url "redis://:$(cat "$directory/redis_password")@redis:6379/0"
# Empty is none; these are filled in by hand.
for name in gprojci_webhook_secret_previous gprojci_github_token gprojci_github_client_secret gprojci_worker_token; do
    [ -e "$directory/$name" ] || : > "$directory/$name"
    chmod 644 "$directory/$name"
done
