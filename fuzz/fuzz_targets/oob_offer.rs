//! Questions, offers and sealed grants of out-of-band transfers: what is read can be written and reads the same, and
//! nobody else has sealed a grant.

#![no_main]

use std::fmt::Debug;
use std::sync::LazyLock;

use afar_oob::secret::Side;
use afar_oob::{Agreement, GrantError, Offer, Question, Sealer, offer};
use afar_xdr::{Decode, Encode};
use libfuzzer_sys::fuzz_target;

static SEALER: LazyLock<Sealer> = LazyLock::new(|| Sealer::new().expect("random numbers"));

fuzz_target!(|data: &[u8]| {
    again::<Offer>(data);
    if let Some(question) = again::<Question>(data) {
        let own = Agreement::new().expect("random numbers");
        drop(own.agree(Side::Server, &question.share.0));
    }
    let opened = SEALER.open(data, 0).map(drop);
    assert_eq!(opened, Err(GrantError::Foreign));
});

fn again<T: Debug + Decode + Encode + PartialEq>(data: &[u8]) -> Option<T> {
    let message = offer::decode::<T>(data).ok()?;
    let bytes = offer::encode(&message);
    assert_eq!(offer::decode::<T>(&bytes).as_ref(), Ok(&message));
    Some(message)
}
