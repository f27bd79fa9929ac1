from logfleet.net.frame_buffers import ALL_SPARE_BYTES_MAX, STEP_BYTES, FrameBuffers


def test_a_buffer_given_back_is_taken_again() -> None:
    buffers = FrameBuffers()
    first = buffers.take(65_600)
    assert len(first) >= 65_600
    buffers.give_back(first)
    assert buffers.take(66_000) is first
    assert buffers.take(66_000) is not first


def test_no_more_is_kept_than_the_limit() -> None:
    buffers = FrameBuffers()
    taken = [buffers.take(1024 * 1024) for _ in range(20)]
    for buffer in taken:
        buffers.give_back(buffer)
    known = {id(buffer) for buffer in taken}
    again = [buffers.take(1024 * 1024) for _ in range(20)]
    kept = [buffer for buffer in again if id(buffer) in known]
    assert 0 < sum(map(len, kept)) <= ALL_SPARE_BYTES_MAX


def test_buffers_of_odd_or_huge_size_are_not_kept() -> None:
    buffers = FrameBuffers()
    buffers.give_back(bytearray(STEP_BYTES + 1))
    huge = buffers.take(50_000_000)
    assert len(huge) == 50_000_000
    buffers.give_back(huge)
    assert buffers._spare_bytes == 0
