//! Telling what cannot be compressed from a few samples of it.
//!
//! Much of what is stored is compressed already, or encrypted. To find that out by compressing costs
//! more than storing it. Such bytes have two marks: none is seen more often than others, and no
//! sequence comes again. Where a sample lacks either, compressing is worth a try.

/// Records shorter than this are not worth a look.
const LEAST: usize = 64 << 10;
/// A sample has so many bytes, and one begins after each so many.
const SAMPLE: usize = 4 << 10;
const EVERY: usize = 64 << 10;
/// Bytes are as evenly spread as those of noise if two of them are the same in one of at least so many
/// cases. It is one of 256 in noise; one of 181 are 7.5 bits a byte, a sixteenth less than 8.
const ALIKE: u64 = 181;

/// Whether no sample of a record looks as if it could be compressed.
pub(super) fn is_noise(plain: &[u8]) -> bool {
    if plain.len() < LEAST {
        return false;
    }
    let samples = || {
        plain
            .chunks(EVERY)
            .map(|part| &part[..part.len().min(SAMPLE)])
    };
    is_even(samples()) && samples().all(repeats_nothing)
}

fn is_even<'a>(samples: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut counts = [0_u64; 256];
    let mut all = 0;
    for sample in samples {
        all += sample.len() as u64;
        for octet in sample {
            counts[usize::from(*octet)] += 1;
        }
    }
    let alike: u64 = counts.iter().map(|count| count * count).sum();
    alike * ALIKE <= all * all
}

fn repeats_nothing(sample: &[u8]) -> bool {
    // The library wants room for the worst there can be: a tenth more, and some bytes.
    let mut out = [0; SAMPLE + SAMPLE / 4];
    let packed = lz4_flex::block::compress_into(sample, &mut out);
    packed.is_ok_and(|len| len > sample.len() - sample.len() / 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(3);
        (0..len).map(|_| random.u8(..)).collect()
    }

    #[test]
    fn noise_is_noise_wherever_it_begins() {
        let noise = noise(1 << 20);
        for from in [0, 1, 12_345, 500_000] {
            assert!(is_noise(&noise[from..]));
        }
        assert!(!is_noise(&noise[..LEAST - 1]), "not worth a look");
    }

    #[test]
    fn what_can_be_compressed_is_not() {
        let noise = noise(1 << 20);
        // Few different bytes, without order: as in base64.
        let few: Vec<u8> = noise.iter().map(|octet| octet % 64).collect();
        assert!(!is_noise(&few));
        // Every byte as often as any other, but over and over the same.
        let again: Vec<u8> = noise[..1000]
            .iter()
            .copied()
            .cycle()
            .take(1 << 20)
            .collect();
        assert!(!is_noise(&again));
        assert!(!is_noise(&vec![0; 1 << 20]));
        // A quarter of it.
        for quarter in 0..4 {
            let mut some = noise.clone();
            some[quarter << 18..][..1 << 18].fill(b' ');
            assert!(!is_noise(&some), "{quarter}");
        }
    }
}
