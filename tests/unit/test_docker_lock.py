"""Changes of Docker's storage come one after the other, and a look waits for the one under way."""

import threading
from pathlib import Path

from k3deploy.remote.docker_lock import changing_docker, wait_for_change


def test_a_look_waits_for_the_change_under_way(tmp_path: Path) -> None:
    lock = str(tmp_path / "lock")
    order: list[str] = []
    began, may_end = threading.Event(), threading.Event()

    def change() -> None:
        with changing_docker(lock):
            began.set()
            may_end.wait(10)
            order.append("changed")

    def look() -> None:
        wait_for_change(lock)
        order.append("looked")

    changer, looker = threading.Thread(target=change), threading.Thread(target=look)
    changer.start()
    assert began.wait(10)
    looker.start()
    may_end.set()
    changer.join(10)
    looker.join(10)
    assert order == ["changed", "looked"]
    assert not Path(lock).exists()


def test_changes_exclude_each_other(tmp_path: Path) -> None:
    lock = str(tmp_path / "lock")
    inside = 0
    most = 0
    guard = threading.Lock()

    def change() -> None:
        nonlocal inside, most
        for _ in range(20):
            with changing_docker(lock):
                with guard:
                    inside += 1
                    most = max(most, inside)
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=change) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (most, inside) == (1, 0)


def test_a_look_gives_up_after_its_time_and_is_not_stopped_by_a_dead_holder(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    wait_for_change(str(lock))
    lock.touch()  # a holder that was killed
    wait_for_change(str(lock))
    with changing_docker(str(lock)):
        wait_for_change(str(lock), timeout_s=0.2)
    assert not lock.exists()
