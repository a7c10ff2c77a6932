//! Whether a stored hash is that of a password.
//!
//! `caching_sha2_password` stores `$A$`, the number of rounds in thousands as three hexadecimal digits, `$`, 20 bytes of
//! salt, and 43 characters: SHA-256 crypt as Ulrich Drepper specified it, but for the longer salt. The hash is compared and
//! nothing else, so that the result is worth no more than a look at `mysql.user`.

use sha2::{Digest as _, Sha256};

const PREFIX: &str = "$A$";
const SALT: usize = 20;
const LENGTH: usize = 43;
const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// More rounds than MySQL can be told to make.
const MOST_ROUNDS: u32 = 0xFFF * 1000;

/// Whether `stored` is a hash of this password; `None` when its form is not known.
pub(super) fn matches(stored: &str, password: &str) -> Option<bool> {
    let (rounds, rest) = stored.strip_prefix(PREFIX)?.split_once('$')?;
    let rounds = u32::from_str_radix(rounds, 16).ok()?.checked_mul(1000)?;
    let rest = rest.as_bytes();
    let known = (1..=MOST_ROUNDS).contains(&rounds) && rest.len() == SALT + LENGTH;
    let (salt, digest) = known.then(|| rest.split_at(SALT))?;
    Some(encode(&crypt(password.as_bytes(), salt, rounds)) == digest)
}

fn hash(pieces: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for piece in pieces {
        hasher.update(piece);
    }
    hasher.finalize().into()
}

/// `bytes` over and over, `length` bytes of them.
fn repeated(bytes: &[u8; 32], length: usize) -> Vec<u8> {
    bytes.iter().copied().cycle().take(length).collect()
}

fn crypt(password: &[u8], salt: &[u8], rounds: u32) -> [u8; 32] {
    let other = hash(&[password, salt, password]);
    let mut first = vec![password, salt];
    let filling = repeated(&other, password.len());
    first.push(&filling);
    let mut bits = password.len();
    while bits > 0 {
        first.push(if bits & 1 == 1 { &other } else { password });
        bits >>= 1;
    }
    let mut digest = hash(&first);
    let p = repeated(&hash(&vec![password; password.len()]), password.len());
    let s = repeated(&hash(&vec![salt; 16 + usize::from(digest[0])]), salt.len());
    for round in 0..rounds {
        let odd = round & 1 == 1;
        let mut hasher = Sha256::new();
        hasher.update(if odd { p.as_slice() } else { &digest });
        if round % 3 != 0 {
            hasher.update(&s);
        }
        if round % 7 != 0 {
            hasher.update(&p);
        }
        hasher.update(if odd { &digest } else { p.as_slice() });
        digest = hasher.finalize().into();
    }
    digest
}

/// The bytes in crypt's own order, six bits a character.
#[expect(
    clippy::indexing_slicing,
    reason = "six bits of an alphabet of 64, and constants below 32: neither can be out of bounds"
)]
fn encode(digest: &[u8; 32]) -> Vec<u8> {
    let mut text = Vec::with_capacity(LENGTH);
    let mut write = |mut value: u32, characters: usize| {
        for _ in 0..characters {
            text.push(ALPHABET[usize::try_from(value & 0x3F).unwrap_or_default()]);
            value >>= 6;
        }
    };
    let three = |a: u8, b: u8, c: u8| u32::from(a) << 16 | u32::from(b) << 8 | u32::from(c);
    let mut order = (0, 10, 20);
    for _ in 0..10 {
        let (a, b, c) = order;
        write(three(digest[a], digest[b], digest[c]), 4);
        order = ((c + 1) % 30, (a + 1) % 30, (b + 1) % 30);
    }
    write(three(0, digest[31], digest[30]), 3);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What MySQL 9.7.4 stored, in hexadecimal because a salt may hold anything, and the password.
    const STORED: &[(&str, &str)] = &[
        (
            "244124303041240106420E6A0C231967120417016E7737047445797157446E7762696D4E326F47696B48625553425430766F4F\
             6244633164446B4F7A2E526A74433377627835",
            "m",
        ),
        (
            "244124303041242D317A60444035257E402D4832320F504021155166463778306467447A4D5778376572664D6F324F306A4E6F\
             6C5042596D694A336B4E632E364D76456D7430",
            "r'\"\\$#<>%@:/?& ;*",
        ),
        (
            "244124303041247B3D696267784316105410177143646617560F0162742E6F376A4F4D37397834536746303752464A79395232\
             7964354778387069596F2F6838553874426E30",
            "a password of more than thirty-two characters",
        ),
        (
            "24412430304124311A5006374E1F163B620E256A44721B49342D594F34666D56794C37654D44795A6F6A525741644B6E574467\
             4A7064663963367231354678644C59386C4E39",
            "ä€",
        ),
    ];

    fn text(hexadecimal: &str) -> String {
        let byte = |at: usize| u8::from_str_radix(&hexadecimal[at..at + 2], 16).unwrap();
        String::from_utf8((0..hexadecimal.len()).step_by(2).map(byte).collect()).unwrap()
    }

    #[test]
    fn what_a_server_stored_is_the_hash_of_its_password_and_of_no_other() {
        for (stored, password) in STORED {
            assert_eq!(matches(&text(stored), password), Some(true), "{password:?}");
            assert_eq!(matches(&text(stored), "another"), Some(false), "{password:?}");
        }
    }

    #[test]
    fn what_is_no_hash_of_this_form_is_not_judged() {
        for stored in [
            "",
            "*6BB4837EB74329105EE4568DDA7DC67ED2CA2AD9",
            "$A$005$short",
            "$B$005$",
            "$A$xyz$",
        ] {
            assert_eq!(matches(stored, "password"), None, "{stored:?}");
        }
    }
}
