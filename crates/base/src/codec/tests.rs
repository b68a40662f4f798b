//! Written values are read back unchanged; everything else is rejected.

use super::{CodecError, Reader, Writer};
use proptest::prelude::*;

proptest! {
    #[test]
    fn values_survive_the_codec(number in any::<u64>(), wide in any::<u128>(), text in ".{0,40}", some in any::<Option<bool>>()) {
        let mut w = Writer::default();
        w.varint(number);
        w.fixed32(number as u32);
        w.fixed64(number);
        w.fixed128(wide);
        w.text(&text);
        w.option(some, Writer::flag);
        let bytes = w.into_bytes();
        let mut r = Reader::new(&bytes);
        prop_assert_eq!(r.varint("n"), Ok(number));
        prop_assert_eq!(r.fixed32("n"), Ok(number as u32));
        prop_assert_eq!(r.fixed64("n"), Ok(number));
        prop_assert_eq!(r.fixed128("n"), Ok(wide));
        prop_assert_eq!(r.text("text", 200), Ok(text.as_str()));
        prop_assert_eq!(r.option("option", |r| r.flag("flag")), Ok(some));
        prop_assert_eq!(r.end(), Ok(()));
    }

    #[test]
    fn a_number_padded_with_zeros_is_rejected(value in any::<u64>(), shift in 0..64u32, padding in 1..10usize) {
        let mut w = Writer::default();
        w.varint(value >> shift);
        let mut bytes = w.into_bytes();
        *bytes.last_mut().unwrap() |= 0x80;
        bytes.extend(std::iter::repeat_n(0x80, padding - 1));
        bytes.push(0);
        prop_assert!(Reader::new(&bytes).varint("value").is_err());
    }
}

#[test]
fn numbers_beyond_64_bits_are_rejected() {
    let overflow = Err(CodecError::Overflow("value"));
    assert_eq!(Reader::new(&[0xff; 11]).varint("value"), overflow);
    assert_eq!(Reader::new(&[&[0xff; 9][..], &[0x02]].concat()).varint("value"), overflow);
    assert_eq!(Reader::new(&[&[0xff; 9][..], &[0x01]].concat()).varint("value"), Ok(u64::MAX));
    assert_eq!(Reader::new(&[0x80, 0x00]).varint("value"), Err(CodecError::Invalid("value")));
    assert_eq!(Reader::new(&[0xff]).varint("value"), Err(CodecError::Truncated("value")));
}

#[test]
fn a_count_is_bounded_by_the_bytes_that_are_left() {
    let mut w = Writer::default();
    w.count(1000);
    w.raw(&[0; 50]);
    let too_large = |limit| Err(CodecError::TooLarge { what: "items", found: 1000, limit });
    assert_eq!(Reader::new(w.bytes()).count("items", 10, u64::MAX), too_large(5));
    assert_eq!(Reader::new(w.bytes()).count("items", 10, 3), too_large(3));
}

#[test]
fn fuzz_framing() {
    let frames: Vec<Vec<u8>> = [&b"one"[..], b"", &[7; 300]]
        .iter()
        .map(|frame| [&crate::framing::header(&[frame])[..], frame].concat())
        .collect();
    let corpus = [frames.concat(), frames[2].clone()];
    convoke_fuzz::bytes(&corpus, |bytes| {
        let mut buffer = bytes::BytesMut::from(bytes);
        while let Ok(Some(frame)) = crate::framing::next_frame(&mut buffer, 256) {
            assert!(frame.len() <= 256);
        }
    });
}
