//! Signatures of webhooks by the Standard Webhooks specification (version 1): base64 of HMAC-SHA256 over
//! `{id}.{timestamp}.{body}`. Shares no code with the sender.

use axum::http::{HeaderMap, Method, Request};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::Full;
use hyper::body::Bytes;
use sha2::Sha256;

use crate::client::request;

/// Header with the id of the event.
pub const HEADER_ID: &str = "webhook-id";
/// Header with the time of the attempt, in seconds since the epoch.
pub const HEADER_TIMESTAMP: &str = "webhook-timestamp";
/// Header with signatures, separated by spaces.
pub const HEADER_SIGNATURE: &str = "webhook-signature";

/// Largest difference between the timestamp and now that the specification's verifiers allow, in seconds.
const TOLERANCE_SECS: i64 = 300;
const SECRET_PREFIX: &str = "whsec_";
const BAD_SECRET: &str = "the secret is not `whsec_` and base64";

fn mac_of(secret: &str, id: &str, timestamp: &str, body: &[u8]) -> Result<Hmac<Sha256>, &'static str> {
    let key = secret.strip_prefix(SECRET_PREFIX).and_then(|key| BASE64.decode(key).ok()).ok_or(BAD_SECRET)?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).map_err(|_| BAD_SECRET)?;
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    Ok(mac)
}

/// Returns the signature header of one attempt.
pub fn sign(secret: &str, id: &str, timestamp_secs: i64, body: &[u8]) -> Result<String, &'static str> {
    let mac = mac_of(secret, id, &timestamp_secs.to_string(), body)?;
    Ok(format!("v1,{}", BASE64.encode(mac.finalize().into_bytes())))
}

/// Makes a request that delivers `body` as the webhook `id`, signed at this time.
pub fn signed_request(
    secret: &str,
    path: &str,
    id: &str,
    timestamp_secs: i64,
    body: &str,
) -> anyhow::Result<Request<Full<Bytes>>> {
    let signature = sign(secret, id, timestamp_secs, body.as_bytes()).map_err(anyhow::Error::msg)?;
    let mut request = request(Method::POST, path, body.to_owned().into());
    request.headers_mut().insert(HEADER_ID, id.parse()?);
    request.headers_mut().insert(HEADER_TIMESTAMP, timestamp_secs.into());
    request.headers_mut().insert(HEADER_SIGNATURE, signature.parse()?);
    Ok(request)
}

/// Verifies that one of the signatures is by one of `secrets` and that the timestamp is close to `now_secs`.
pub fn verify(headers: &HeaderMap, body: &[u8], secrets: &[String], now_secs: i64) -> Result<(), &'static str> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(id), Some(timestamp), Some(signature)) =
        (header(HEADER_ID), header(HEADER_TIMESTAMP), header(HEADER_SIGNATURE))
    else {
        return Err("a header of the signature is missing");
    };
    let sent: i64 = timestamp.parse().map_err(|_| "the timestamp is not a number")?;
    if now_secs.saturating_sub(sent).saturating_abs() > TOLERANCE_SECS {
        return Err("the timestamp is not now");
    }
    let signatures: Vec<Vec<u8>> = signature
        .split(' ')
        .filter_map(|one| one.strip_prefix("v1,"))
        .filter_map(|one| BASE64.decode(one).ok())
        .collect();
    for secret in secrets {
        let mac = mac_of(secret, id, timestamp, body)?;
        if signatures.iter().any(|signature| mac.clone().verify_slice(signature).is_ok()) {
            return Ok(());
        }
    }
    Err("no signature is by the endpoint's secret")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const NOW_SECS: i64 = 1_614_265_330;

    /// The example of the specification's reference implementation, with one header changed.
    fn headers(changed: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER_ID, "msg_p5jXN8AQM9LWM0D4loKWxJek".parse().unwrap());
        headers.insert(HEADER_TIMESTAMP, "1614265330".parse().unwrap());
        headers.insert(HEADER_SIGNATURE, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=".parse().unwrap());
        if !changed.is_empty() {
            headers.insert(changed, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn verifies_the_reference_example_and_no_variation_of_it() {
        let (secrets, body) = ([SECRET.to_owned()], br#"{"test": 2432232314}"#);
        let right = headers("", "");
        assert_eq!(verify(&right, body, &secrets, NOW_SECS), Ok(()));
        let signed = sign(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", NOW_SECS, body).unwrap();
        assert_eq!(signed, right[HEADER_SIGNATURE].to_str().unwrap());
        let several = format!("v1,AAAA {signed}");
        assert_eq!(verify(&headers(HEADER_SIGNATURE, &several), body, &secrets, NOW_SECS), Ok(()));
        assert!(verify(&right, b"{}", &secrets, NOW_SECS).is_err());
        assert!(verify(&headers(HEADER_ID, "other"), body, &secrets, NOW_SECS).is_err());
        assert!(verify(&headers(HEADER_TIMESTAMP, "1614265331"), body, &secrets, NOW_SECS).is_err());
        assert_eq!(verify(&right, body, &secrets, NOW_SECS + TOLERANCE_SECS + 1), Err("the timestamp is not now"));
        assert!(verify(&right, body, &[], NOW_SECS).is_err());
        assert!(verify(&HeaderMap::new(), body, &secrets, NOW_SECS).is_err());
        let other = ["whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWo=".to_owned(), SECRET.to_owned()];
        assert_eq!(verify(&right, body, &other, NOW_SECS), Ok(()));
    }
}
