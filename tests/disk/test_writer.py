"""The writer of shards: the same bytes with and without O_DIRECT, whatever the sizes; errors arrive, nothing hangs."""

import errno
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardtool.base.errors import UsageError
from shardtool.disk.writer import BLOCK, BUFFERS, MODES, ShardWriter, buffers_bytes

DATA = random.Random(1).randbytes(1 << 20)
CHUNK = 4 * BLOCK
MODE = pytest.mark.parametrize("mode", MODES)


def takes_direct(folder):
    path = os.path.join(os.fsencode(folder), b"direct?")
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    except OSError:
        return False
    page = ShardWriter(BLOCK)
    try:
        page.begin(path + b"2")
        return os.pwrite(fd, page.space()[:BLOCK], 0) == BLOCK
    except OSError:
        return False
    finally:
        page.close()
        os.close(fd)


@pytest.fixture(autouse=True)
def nothing_left():
    """No test may leave a descriptor or a thread."""
    before, threads = os.listdir("/proc/self/fd"), threading.active_count()
    yield
    assert os.listdir("/proc/self/fd") == before
    assert threading.active_count() == threads


@pytest.fixture
def make(monkeypatch, tmp_path):
    """make(mode, chunk) -> a writer, closed at the end."""
    made = []

    def maker(mode="auto", chunk=CHUNK, algorithms=(), folder=tmp_path):
        if mode == "direct" and not takes_direct(folder):
            pytest.skip("no O_DIRECT in this folder")
        monkeypatch.setenv("SHARDTOOL_IO", mode)
        made.append(ShardWriter(chunk, algorithms))
        return made[-1]

    yield maker
    for writer in made:
        writer.close()


def put(writer, steps):
    """Carry out [(how, bytes)]; the bytes that were written."""
    at = 0
    for how, count in steps:
        if how == "commit":
            space = writer.space()
            assert len(space) >= count
            space[:count] = DATA[at : at + count]
            writer.commit(count)
        else:
            writer.write(DATA[at : at + count])
        at += count
    return DATA[:at]


def is_shard(path, data, writer, digests):
    assert path.read_bytes() == data
    assert writer.bytes == len(data)
    assert digests["xxh3-128"] == xxhash.xxh3_128_hexdigest(data)
    return True


AROUND = sorted({max(0, k * BLOCK + d) for k in (0, 1, 2, 4, 5, 8, 20) for d in (-513, -1, 0, 1, 511)})


@MODE
def test_sizes_around_blocks_and_chunks(tmp_path, make, mode):
    writer = make(mode)
    for size in AROUND:
        path = tmp_path / str(size)
        for how in ("write", "commit"):
            writer.begin(bytes(path))
            whole = [(how, CHUNK)] * (size // CHUNK) + [(how, size % CHUNK)]
            data = put(writer, whole)
            assert is_shard(path, data, writer, writer.finish()) and len(data) == size


@given(
    chunk=st.sampled_from([1, 512, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK]),
    mode=st.sampled_from(["auto", "buffered"]),
    shards=st.lists(
        st.lists(st.tuples(st.sampled_from(["write", "commit"]), st.integers(0, 20_000)), max_size=12),
        min_size=1, max_size=3,
    ),
)  # fmt: skip
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sequence_of_pieces(tmp_path, make, chunk, mode, shards):
    writer = make(mode, chunk)
    path = tmp_path / "shard"
    for steps in shards:
        steps = [(how, min(count, chunk) if how == "commit" else count) for how, count in steps]
        writer.begin(bytes(path))
        data = put(writer, steps)
        assert is_shard(path, data, writer, writer.finish())
    writer.close()


@MODE
def test_digests_by_name(tmp_path, make, mode):
    writer = make(mode, algorithms=("sha256", "md5"))
    for size in (0, 5, 3 * CHUNK + 7):  # digests begin anew with each shard
        writer.begin(bytes(tmp_path / "x"))
        writer.write(DATA[:size])
        assert writer.finish() == {
            "xxh3-128": xxhash.xxh3_128_hexdigest(DATA[:size]),
            "sha256": hashlib.sha256(DATA[:size]).hexdigest(),
            "md5": hashlib.md5(DATA[:size]).hexdigest(),
        }


def watch(monkeypatch, name):
    """Calls of an os function, made as ever."""
    calls, real = [], getattr(os, name)

    def wrapped(*args, **kwargs):
        calls.append(args)
        return real(*args, **kwargs)

    monkeypatch.setattr(os, name, wrapped)
    return calls


def test_direct_is_direct_and_pads(tmp_path, make, monkeypatch):
    writer = make("direct")
    opened, writes, cuts = (watch(monkeypatch, name) for name in ("open", "pwrite", "ftruncate"))
    writer.begin(bytes(tmp_path / "x"))
    writer.write(DATA[: 5 * BLOCK + 100])
    writer.finish()
    assert opened[0][1] & os.O_DIRECT
    assert all(len(view) % BLOCK == 0 and at % BLOCK == 0 for _, view, at in writes)
    assert sum(len(view) for _, view, _ in writes) == 6 * BLOCK and [size for _, size in cuts] == [5 * BLOCK + 100]


def test_buffered_starts_writing_back_and_never_asks_for_direct(tmp_path, make, monkeypatch):
    writer = make("buffered")
    opened, hints, cuts = (watch(monkeypatch, name) for name in ("open", "posix_fadvise", "ftruncate"))
    writer.begin(bytes(tmp_path / "x"))
    writer.write(DATA[: 9 * BLOCK])
    writer.finish()
    assert not opened[0][1] & os.O_DIRECT and cuts == []
    assert sum(length for _, _, length, _ in hints) == 9 * BLOCK


def test_an_unknown_mode_is_refused(make):
    with pytest.raises(UsageError, match="SHARDTOOL_IO='fast'"):
        make("fast")


# -- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP])
def test_refused_at_open(tmp_path, make, monkeypatch, number):
    real, asked = os.open, []

    def refuse(path, flags, *rest, **more):
        if flags & os.O_DIRECT:
            asked.append(path)
            os.close(real(path, flags & ~os.O_DIRECT, *rest, **more))  # as Linux does: the file is there
            raise OSError(number, os.strerror(number), path)
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    writer = make("auto")
    for name in ("a", "b"):
        writer.begin(bytes(tmp_path / name))
        writer.write(DATA[:50_000])
        assert is_shard(tmp_path / name, DATA[:50_000], writer, writer.finish())
    assert asked == [bytes(tmp_path / "a")]  # not asked again


@pytest.mark.parametrize("k", range(4))
@pytest.mark.parametrize("size", [3 * CHUNK, 3 * CHUNK + 100, 100])
def test_refused_at_a_write(tmp_path, make, monkeypatch, k, size):
    import fcntl

    real, calls = os.pwrite, []

    def refuse(fd, data, at):
        calls.append(at)
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT and len(calls) > k:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(fd, data, at)

    monkeypatch.setattr(os, "pwrite", refuse)
    writer = make("auto")
    writer.begin(bytes(tmp_path / "x"))
    writer.write(DATA[:size])
    assert is_shard(tmp_path / "x", DATA[:size], writer, writer.finish())


def test_a_refusal_is_an_error_when_direct_is_demanded(tmp_path, make, monkeypatch):
    writer = make("direct")

    def refuse(fd, data, at):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "pwrite", refuse)
    writer.begin(bytes(tmp_path / "x"))
    writer.write(DATA[:100])
    with pytest.raises(OSError, match="Invalid argument"):
        writer.finish()


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no tmpfs at hand")
def test_on_tmpfs(make):
    folder = tempfile.mkdtemp(dir="/dev/shm")
    try:
        writer = make("auto")
        path = os.path.join(folder, "x")
        writer.begin(os.fsencode(path))
        writer.write(DATA[:100_001])
        writer.finish()
        with open(path, "rb") as file:
            assert file.read() == DATA[:100_001]
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("most", [1, 100, BLOCK - 1, BLOCK, BLOCK + 513, 2 * BLOCK])
@MODE
def test_short_writes(tmp_path, make, monkeypatch, mode, most):
    """A file system may write less than it was asked for, also within a block."""
    if mode == "direct" and most < BLOCK:
        pytest.skip("that is a refusal")
    real = os.pwrite

    def short(fd, data, at):
        data = memoryview(data)
        try:
            return real(fd, data[:most], at)
        except OSError:
            real(fd, data[: max(BLOCK, most // BLOCK * BLOCK)], at)  # what O_DIRECT takes; and say less
            return most

    monkeypatch.setattr(os, "pwrite", short)
    writer = make(mode)
    for size in (2 * CHUNK + 777, 3 * BLOCK, 5000 if most > 1 else 50):
        if most == 1:
            size = min(size, 4096 + 30)
        writer.begin(bytes(tmp_path / "x"))
        writer.write(DATA[:size])
        assert is_shard(tmp_path / "x", DATA[:size], writer, writer.finish())


# -- errors ------------------------------------------------------------------------------------------------------


@MODE
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("k", [0, 1, 5])
def test_an_error_arrives_with_the_files_name(tmp_path, make, monkeypatch, mode, number, k):
    writer = make(mode)
    real, calls = os.pwrite, []

    def fail(fd, data, at):
        calls.append(at)
        if len(calls) > k:
            raise OSError(number, os.strerror(number))
        return real(fd, data, at)

    monkeypatch.setattr(os, "pwrite", fail)
    path = bytes(tmp_path / "x")
    writer.begin(path)
    with pytest.raises(OSError) as caught:
        for _ in range(50):  # far more than there are buffers: it must come while writing
            writer.write(DATA[:CHUNK])
    assert (caught.value.errno, caught.value.filename) == (number, path)
    assert len(calls) == k + 1  # the others passed through
    with pytest.raises(OSError):
        writer.finish()
    writer.abort()
    # the writer is as good as new
    monkeypatch.setattr(os, "pwrite", real)
    writer.begin(path)
    writer.write(DATA)
    assert is_shard(tmp_path / "x", DATA, writer, writer.finish())


@MODE
@pytest.mark.parametrize("name", ["pwrite", "fsync", "ftruncate"])
def test_an_error_at_the_end_arrives_in_finish(tmp_path, make, monkeypatch, mode, name):
    writer = make(mode)
    path = bytes(tmp_path / "x")
    writer.begin(path)
    writer.write(DATA[:CHUNK])
    monkeypatch.setattr(os, name, lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    writer.write(DATA[:100])
    if name == "ftruncate" and mode == "buffered":
        writer.finish()  # nothing to cut
        return
    with pytest.raises(OSError) as caught:
        writer.finish()
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, path)


def test_any_other_exception_of_the_thread_arrives_too(tmp_path, make, monkeypatch):
    writer = make()
    monkeypatch.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(MemoryError))
    writer.begin(bytes(tmp_path / "x"))
    writer.write(b"1")
    with pytest.raises(MemoryError):
        writer.finish()


def test_a_file_that_cannot_be_made(tmp_path, make):
    writer = make()
    path = bytes(tmp_path / "none" / "x")
    with pytest.raises(FileNotFoundError) as caught:
        writer.begin(path)
    assert caught.value.filename == path
    writer.begin(bytes(tmp_path / "x"))
    assert writer.finish()["xxh3-128"] == xxhash.xxh3_128_hexdigest(b"")


@MODE
@pytest.mark.parametrize(("limit", "size", "fits"), [
    (10_000, 50_000, False), (10_000, 10_000, True), (2 * BLOCK, 3 * BLOCK, False), (100_001, 100_001, True),
])  # fmt: skip
def test_a_limit_of_file_size(tmp_path, mode, limit, size, fits):
    """Past RLIMIT_FSIZE it is EFBIG, no signal; padding does not count."""
    if mode == "direct":
        pytest.skip("a limit within a block is a refusal")
    program = (
        "import sys, resource; from shardtool.disk.writer import ShardWriter\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        f"w = ShardWriter({CHUNK}); w.begin({bytes(tmp_path / 'x')!r})\n"
        f"try: w.write(bytes({size})); w.finish()\n"
        "except OSError as e: print(e.errno, e.filename)\n"
        "w.close()\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, "SHARDTOOL_IO": mode},
        timeout=60,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == ("" if fits else f"{errno.EFBIG} {bytes(tmp_path / 'x')}\n")
    if fits:
        assert (tmp_path / "x").read_bytes() == bytes(size)


# -- life --------------------------------------------------------------------------------------------------------


@MODE
def test_abort_at_any_time(tmp_path, make, mode):
    writer = make(mode)
    writer.abort()
    for pieces in range(12):
        writer.begin(bytes(tmp_path / "x"))
        for _ in range(pieces):
            writer.write(DATA[:CHUNK])
        writer.space()
        writer.abort()
    writer.begin(bytes(tmp_path / "x"))
    writer.write(DATA)
    assert is_shard(tmp_path / "x", DATA, writer, writer.finish())


def test_interrupted_while_it_waits_for_a_buffer(tmp_path, make, monkeypatch):
    """A signal's exception in the producer, with all buffers at a thread that is stuck in a write."""
    writer, real, go = make(), os.pwrite, threading.Event()

    def stuck(fd, data, at):
        go.wait()
        return real(fd, data, at)

    monkeypatch.setattr(os, "pwrite", stuck)
    before = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    try:
        writer.begin(bytes(tmp_path / "x"))
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            writer.write(DATA)
    finally:
        signal.signal(signal.SIGALRM, before)
        go.set()
    writer.abort()
    writer.begin(bytes(tmp_path / "x"))
    writer.write(DATA)
    assert is_shard(tmp_path / "x", DATA, writer, writer.finish())


def test_memory_is_what_it_says_and_is_given_back(tmp_path, make, monkeypatch):
    import mmap

    made = []

    class Watched(mmap.mmap):
        def __new__(cls, *args, **kwargs):
            made.append(super().__new__(cls, *args, **kwargs))
            return made[-1]

    monkeypatch.setattr(mmap, "mmap", Watched)
    writer = make(chunk=(2 << 20) - BLOCK)
    for _ in range(3):
        writer.begin(bytes(tmp_path / "x"))
        for _ in range(20):
            writer.write(DATA)
        writer.finish()
    assert 1 <= len(made) <= BUFFERS
    assert {len(buffer) for buffer in made} == {2 << 20}
    assert buffers_bytes((2 << 20) - BLOCK) == BUFFERS * (2 << 20)
    writer.close()
    assert all(buffer.closed for buffer in made)
    writer.close()


def test_close_while_somebody_looks_at_a_buffer(tmp_path, make):
    writer = make()
    writer.begin(bytes(tmp_path / "x"))
    space = writer.space()
    space[:3] = b"abc"
    writer.close()
    assert bytes(space[:3]) == b"abc"


def test_a_fork_between_shards_is_noticed(tmp_path, make):
    writer = make()
    writer.begin(bytes(tmp_path / "x"))
    writer.finish()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            writer.begin(bytes(tmp_path / "y"))
        except AssertionError:
            writer.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_fork_before_the_first_shard_is_fine(tmp_path, make):
    writer = make()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            writer.begin(bytes(tmp_path / "x"))
            writer.write(DATA)
            writer.finish()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert (tmp_path / "x").read_bytes() == DATA


def test_a_writer_that_nobody_closed_does_not_hold_the_interpreter(tmp_path):
    program = (
        "from shardtool.disk.writer import ShardWriter\n"
        f"w = ShardWriter(4096); w.begin({bytes(tmp_path / 'x')!r}); w.write(bytes(100_000))\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=30).returncode == 0


def test_no_more_threads(tmp_path, make, monkeypatch):
    from shardtool.base.errors import HostError

    def refuse(self):
        raise RuntimeError("can't start new thread")

    writer = make()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(HostError, match="can't start new thread"):
        writer.begin(bytes(tmp_path / "x"))
