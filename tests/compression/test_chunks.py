"""What SparseLoCo and DeMo send: indices in as many bits as they need, values in two."""

import pytest
import torch

from repro.compression.chunks import ChunkTopK, from_two_bits, pack_bits, two_bits, unpack_bits


@pytest.mark.parametrize("width", [1, 2, 6, 12, 14, 31])
@pytest.mark.parametrize("n", [1, 5, 16, 1000])
def test_codes_come_back_and_fill_no_more_words_than_they_need(n, width):
    codes = torch.randint(0, 2**width, (n,), generator=torch.Generator().manual_seed(n))
    packed = pack_bits(codes, width)
    assert packed.dtype == torch.int32 and packed.numel() == -(-n * width // 32)
    assert torch.equal(unpack_bits(packed, width, n), codes.int())
    assert pack_bits(codes.to("meta"), width).shape == packed.shape


def test_an_index_that_can_only_be_zero_takes_no_bits():
    packed = pack_bits(torch.zeros(9, dtype=torch.int32), 0)
    assert packed.numel() == 0 and torch.equal(unpack_bits(packed, 0, 9), torch.zeros(9, dtype=torch.int32))


def test_two_bits_keep_signs_and_lose_nothing_of_two_magnitudes():
    value = torch.tensor([[1.0, -1.0, 5.0, -5.0], [3.0, 3.0, -3.0, 3.0], [0.0, 0.0, 0.0, 0.0]])
    scales, codes = two_bits(value)
    assert codes.min() >= 0 and codes.max() <= 3
    assert torch.equal(from_two_bits(scales, codes), value)


def test_two_bits_of_a_selection_are_nearer_than_its_signs_alone():
    rows = torch.randn(50, 1000, generator=torch.Generator().manual_seed(0))
    value = rows.gather(1, rows.abs().topk(64).indices)
    error = (from_two_bits(*two_bits(value)) - value).norm()
    signs = (value.sign() * value.abs().mean(1, keepdim=True) - value).norm()
    assert error < 0.65 * signs < 0.2 * value.norm()


def test_what_is_not_finite_stays_so():
    for odd in (torch.inf, torch.nan):
        value = torch.tensor([[1.0, odd, 2.0], [1.0, 2.0, 3.0]])
        decoded = from_two_bits(*two_bits(value))
        assert not decoded[0].isfinite().all() and decoded[1].isfinite().all()


@pytest.mark.parametrize(("m", "chunk", "top"), [(10_000, 4096, 64), (600, 4096, 64), (4096, 4096, 40), (7, 4, 9)])
def test_each_chunk_sends_its_largest_entries_in_the_bytes_that_are_said(m, chunk, top):
    x = torch.randn(m, generator=torch.Generator().manual_seed(0))
    codec = ChunkTopK(m, chunk, top)
    message = codec.encode(x)
    assert message.dtype == torch.uint8 and message.numel() == codec.nbytes
    decoded = codec.decode(message)
    for start in range(0, m, chunk):
        part, sent = x[start : start + chunk], decoded[start : start + chunk]
        largest = part.abs().topk(min(top, part.numel())).indices.sort().values
        assert torch.equal(sent.nonzero().squeeze(1), largest)
        assert torch.equal(sent[largest].sign(), part[largest].sign())
    assert codec.encode(x.to("meta")).shape == message.shape
