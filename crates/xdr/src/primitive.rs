//! Numbers, booleans, optionals and fixed arrays.

use bytes::{BufMut, BytesMut};

use crate::{Decode, DecodeError, Decoder, Encode};

macro_rules! whole {
    ($($ty:ident $put:ident $len:literal),*) => {$(
        impl Encode for $ty {
            fn encode(&self, out: &mut BytesMut) {
                out.$put(*self);
            }
        }

        impl Decode for $ty {
            const MIN_LEN: usize = $len;
            const MAX_LEN: usize = $len;

            fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                Ok(Self::from_be_bytes(input.take_array(stringify!($ty))?))
            }
        }
    )*};
}

whole!(u32 put_u32 4, i32 put_i32 4, u64 put_u64 8, i64 put_i64 8);

// AFS sends `char`, `short` and their unsigned forms as a whole word each, signed ones
// sign-extended. Only the low bits count on receipt, because some peers sign-extend `u_char` too.
macro_rules! narrow {
    ($($ty:ident as $wide:ident),*) => {$(
        impl Encode for $ty {
            fn encode(&self, out: &mut BytesMut) {
                $wide::from(*self).encode(out);
            }
        }

        impl Decode for $ty {
            const MIN_LEN: usize = 4;
            const MAX_LEN: usize = 4;

            fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                let word: [u8; 4] = input.take_array(stringify!($ty))?;
                let mut low = [0; size_of::<Self>()];
                low.copy_from_slice(&word[4 - size_of::<Self>()..]);
                Ok(Self::from_be_bytes(low))
            }
        }
    )*};
}

narrow!(u8 as u32, i8 as i32, u16 as u32, i16 as i32);

impl Encode for bool {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u32(u32::from(*self));
    }
}

/// Any word but 0 is true, as AFS peers read it.
impl Decode for bool {
    const MIN_LEN: usize = 4;
    const MAX_LEN: usize = 4;

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(u32::from_be_bytes(input.take_array("bool")?) != 0)
    }
}

/// RFC 4506 §4.19: a boolean, then the value if it is true.
impl<T: Encode> Encode for Option<T> {
    fn encode(&self, out: &mut BytesMut) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }
}

impl<T: Decode> Decode for Option<T> {
    const MIN_LEN: usize = 4;
    const MAX_LEN: usize = T::MAX_LEN.saturating_add(4);

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        if bool::decode(input)? {
            T::decode(input).map(Some)
        } else {
            Ok(None)
        }
    }
}

/// `T a[N]`: the elements, without a count. `[u8; N]` is AFS's `char a[N]`, a word each.
impl<T: Encode, const N: usize> Encode for [T; N] {
    fn encode(&self, out: &mut BytesMut) {
        for element in self {
            element.encode(out);
        }
    }
}

impl<T: Decode + Copy + Default, const N: usize> Decode for [T; N] {
    const MIN_LEN: usize = T::MIN_LEN.saturating_mul(N);
    const MAX_LEN: usize = T::MAX_LEN.saturating_mul(N);

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut elements = [T::default(); N];
        for element in &mut elements {
            *element = T::decode(input)?;
        }
        Ok(elements)
    }
}
