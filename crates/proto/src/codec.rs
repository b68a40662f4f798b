//! The codec of all gRPC streams: `tonic_prost::ProstCodec` with smaller buffers, because most streams are idle.

use prost::Message;
use std::marker::PhantomData;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::ProstCodec;

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
    type Decoder = <ProstCodec<T, U> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        LowMemoryEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(settings())
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
