//! The codec of all gRPC streams: `tonic_prost::ProstCodec` with smaller buffers, because most streams are idle, and with a
//! limit of elements that applies before a message is decoded.

use crate::elements::TXN_ELEMENTS_MAX;
use crate::{ELEMENTS_MAX, Error, ErrorCode, KEY_WATCHES_MAX, UNION_MAX, elements, v1};
use prost::Message;
use prost::bytes::Buf;
use std::any::TypeId;
use std::marker::PhantomData;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Initial size of the buffer that a stream holds in each direction for its whole lifetime. Heartbeats and their
/// acknowledgements are much smaller.
const BUFFER_BYTES: usize = 512;
/// Size from which the buffer is flushed. A large message is therefore flushed alone, and its memory is freed with it:
/// the next message gets a new buffer.
const FLUSH_BYTES: usize = 4 * 1024;

/// Codec of all services.
#[derive(Clone, Debug)]
pub struct LowMemoryCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for LowMemoryCodec<T, U> {
    fn default() -> Self {
        LowMemoryCodec(PhantomData)
    }
}

impl<T, U> Codec for LowMemoryCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = LowMemoryEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        LowMemoryEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(PhantomData)
    }
}

fn settings() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, FLUSH_BYTES)
}

/// Encoder that reserves exactly the memory a message needs, in one allocation.
#[derive(Clone, Debug)]
pub struct LowMemoryEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for LowMemoryEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.reserve(item.encoded_len());
        item.encode_raw(into);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        settings()
    }
}

/// Decoder that counts the elements of a client's message first.
#[derive(Clone, Debug)]
pub struct BoundedDecoder<U>(PhantomData<U>);

impl<U: Message + Default + 'static> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // The buffer is contiguous.
        check_elements(TypeId::of::<U>(), from.chunk())?;
        U::decode(from).map(Some).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        settings()
    }
}

/// Rejects a message of a client with more elements than its limits can allow.
fn check_elements(message: TypeId, bytes: &[u8]) -> Result<(), Error> {
    let too_many = |message: &str, field, limit: usize| {
        Err(Error::new(ErrorCode::TooLarge, message).field(field).limit(limit as u64))
    };
    if message == TypeId::of::<v1::ClientMessage>() {
        if elements::in_client_message(bytes, ELEMENTS_MAX).is_none() {
            let message = "the message has too many elements; send the attach in parts and fewer requests at once";
            return too_many(message, "message", ELEMENTS_MAX);
        }
        return Ok(());
    }
    if message == TypeId::of::<v1::KeyWatchRequest>() {
        if elements::in_key_watch_request(bytes, KEY_WATCHES_MAX).is_none() {
            return too_many("one stream has too many watches; open another one", "watches", KEY_WATCHES_MAX);
        }
        return match elements::in_key_watch_unions(bytes, UNION_MAX) {
            Some(_) => Ok(()),
            None => too_many("one stream selects too many ranges and locks; open another one", "union", UNION_MAX),
        };
    }
    let operations = if message == TypeId::of::<v1::SubmitRequest>() {
        elements::in_submit_request(bytes, TXN_ELEMENTS_MAX)
    } else if message == TypeId::of::<v1::ReadRequest>() {
        elements::in_read_request(bytes, TXN_ELEMENTS_MAX)
    } else {
        return Ok(());
    };
    match operations {
        Some(_) => Ok(()),
        None => too_many("the transaction has too many operations; split it", "operations", TXN_ELEMENTS_MAX),
    }
}
