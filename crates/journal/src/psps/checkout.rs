//! Appearance of the payer's page, as decided by the PSP: its name, colour, logo and the link back.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use url::Url;

/// Placeholder of the payment's id in a return URL.
pub const PAYMENT_ID: &str = "{payment_id}";

/// Appearance of the payer's page.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Checkout {
    /// Name above the payment, instead of the merchant's.
    pub name: Option<String>,
    /// Colour of the name's background and of buttons.
    pub color: Option<Color>,
    /// Target of the link at the end of a payment.
    pub return_url: Option<ReturnUrl>,
    /// Hash of the logo.
    pub logo: Option<String>,
}

/// A colour of the sRGB space: red, green and blue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct Color([u8; 3]);

/// A text is no colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be # and six hexadecimal digits, such as \"#0b6e75\"")]
pub struct ColorError;

impl FromStr for Color {
    type Err = ColorError;

    fn from_str(text: &str) -> Result<Self, ColorError> {
        let mut rgb = [0; 3];
        let digits = text.strip_prefix('#').ok_or(ColorError)?;
        hex::decode_to_slice(digits, &mut rgb).map_err(|_| ColorError)?;
        Ok(Self(rgb))
    }
}

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", hex::encode(self.0))
    }
}

impl Color {
    /// White.
    const WHITE: Self = Self([255; 3]);
    /// Black.
    const BLACK: Self = Self([0; 3]);

    /// Colour of text on this colour: black or white, whichever has more contrast. The contrast is at least 4.5 : 1, as WCAG
    /// requires for small text: the product of both contrasts is 21, so that the greater is at least its root.
    pub fn text(self) -> Self {
        if self.contrast(Self::WHITE) >= self.contrast(Self::BLACK) { Self::WHITE } else { Self::BLACK }
    }

    /// Contrast with another colour: from 1 to 21 (WCAG 2.2).
    fn contrast(self, other: Self) -> f64 {
        let (one, other) = (self.luminance(), other.luminance());
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    /// Relative luminance: from 0 to 1 (WCAG 2.2).
    fn luminance(self) -> f64 {
        let linear = |channel: u8| {
            let channel = f64::from(channel) / 255.0;
            if channel <= 0.040_45 { channel / 12.92 } else { ((channel + 0.055) / 1.055).powf(2.4) }
        };
        let [red, green, blue] = self.0.map(linear);
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }
}

/// An HTTPS URL, which may contain [`PAYMENT_ID`] after its host.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display, SerializeDisplay, DeserializeFromStr)]
pub struct ReturnUrl(String);

/// Reason why a text is not a return URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReturnUrlError {
    /// It is no URL, has no host, or has another scheme.
    #[error("must be an https:// URL")]
    NotHttps,
    /// It has a user name or a password.
    #[error("must contain no user name and no password")]
    Credentials,
    /// It has a brace that is not part of the placeholder, or the placeholder is in the host.
    #[error("may contain {PAYMENT_ID} after the host, and no other braces")]
    Placeholder,
}

impl FromStr for ReturnUrl {
    type Err = ReturnUrlError;

    fn from_str(text: &str) -> Result<Self, ReturnUrlError> {
        let is_plain = !text.contains(|c: char| c.is_control() || c.is_whitespace() || c == '\\');
        let parse = |id: &str| {
            let url = Url::parse(&text.replace(PAYMENT_ID, id)).ok();
            url.filter(|url| is_plain && url.scheme() == "https" && url.has_host()).ok_or(ReturnUrlError::NotHttps)
        };
        let (one, other) = (parse("a")?, parse("b")?);
        if !one.username().is_empty() || one.password().is_some() {
            return Err(ReturnUrlError::Credentials);
        }
        if one.origin() != other.origin() || text.replace(PAYMENT_ID, "").contains(['{', '}']) {
            return Err(ReturnUrlError::Placeholder);
        }
        Ok(Self(text.to_owned()))
    }
}

impl ReturnUrl {
    /// The link of a payment. An id has only letters, digits and `_`.
    pub fn of(&self, payment_id: &str) -> String {
        self.0.replace(PAYMENT_ID, payment_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_on_every_colour_has_the_contrast_that_wcag_requires() {
        for rgb in (0..=0x00ff_ffff_u32).step_by(251).chain([0x00ff_ffff, 0x0077_7777, 0x0075_7575]) {
            let [_, rgb @ ..] = rgb.to_be_bytes();
            let color = Color(rgb);
            assert!(color.contrast(color.text()) >= 4.5, "{color}");
        }
        let text = |color: &str| color.parse::<Color>().unwrap().text().to_string();
        assert_eq!([text("#0b6e75"), text("#FFD400"), text("#000000")], ["#ffffff", "#000000", "#ffffff"]);
        assert!((Color::WHITE.contrast(Color::BLACK) - 21.0).abs() < 1e-9);
    }

    #[test]
    fn only_six_digits_are_a_colour() {
        assert_eq!("#A0b1C2".parse::<Color>().unwrap().to_string(), "#a0b1c2");
        for bad in ["", "#", "a0b1c2", "#a0b1c", "#a0b1c2d", "red", "#a0b1g2", "#fff", "#a0b1c2;}", "#é0b1c"] {
            assert_eq!(bad.parse::<Color>(), Err(ColorError), "{bad}");
        }
    }

    #[test]
    fn return_urls_are_https_and_have_one_placeholder() {
        let id = "pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3";
        for (url, link) in [
            ("https://shop.example", "https://shop.example".to_owned()),
            ("https://shop.example/o/{payment_id}?p={payment_id}#x", format!("https://shop.example/o/{id}?p={id}#x")),
            ("https://[::1]:8443/é", "https://[::1]:8443/é".to_owned()),
        ] {
            assert_eq!(url.parse::<ReturnUrl>().unwrap().of(id), link);
        }
        for (bad, error) in [
            ("", ReturnUrlError::NotHttps),
            ("shop.example", ReturnUrlError::NotHttps),
            ("http://shop.example", ReturnUrlError::NotHttps),
            ("javascript:alert(1)", ReturnUrlError::NotHttps),
            ("https://", ReturnUrlError::NotHttps),
            ("https://shop.example/a b", ReturnUrlError::NotHttps),
            ("https://shop.example\\@evil.example", ReturnUrlError::NotHttps),
            ("https://shop.example/\n", ReturnUrlError::NotHttps),
            ("https://user:secret@shop.example", ReturnUrlError::Credentials),
            ("https://{payment_id}.example", ReturnUrlError::Placeholder),
            ("https://shop.example/{status}", ReturnUrlError::Placeholder),
            ("https://shop.example/{payment_id}}", ReturnUrlError::Placeholder),
        ] {
            assert_eq!(bad.parse::<ReturnUrl>(), Err(error), "{bad}");
        }
    }

    #[test]
    fn settings_store_only_what_is_set() {
        assert_eq!(serde_json::to_string(&Checkout::default()).unwrap(), "{}");
        let checkout = Checkout {
            name: Some("Ferry Shop".to_owned()),
            color: "#0b6e75".parse().ok(),
            return_url: "https://shop.example/{payment_id}".parse().ok(),
            logo: Some("ab".repeat(32)),
        };
        let stored = serde_json::to_string(&checkout).unwrap();
        assert_eq!(serde_json::from_str::<Checkout>(&stored).unwrap(), checkout);
        assert_eq!(serde_json::from_str::<Checkout>("{}").unwrap(), Checkout::default());
    }
}
