"""Print a store's runs and their events as JSON lines: run inside the lab, where its S3 server can be reached."""

import sys

from k3deploy.adapters.store.open import open_store
from k3deploy.domain.names import RunId
from k3deploy.domain.run import RECORDS, Keys


def main() -> None:
    store = open_store(sys.argv[1])
    for record in store.list(RECORDS):
        run = record.removeprefix(RECORDS).removesuffix(".json")
        print(f"run {run}")
        for key in store.list(Keys(RunId(run)).events):
            stored = store.get(key)
            assert stored is not None
            sys.stdout.write(stored.data.decode())


if __name__ == "__main__":
    main()
