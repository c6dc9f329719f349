//! Traces: spans in the context of a W3C `traceparent` header, exported if [`export_to`] was called.
//!
//! A payment stores the context of the request that created it. Its later spans are children of that context, whatever node
//! runs them and however often it has restarted. Without an exporter, spans do no work: neither contexts nor attributes are
//! computed. Deliberately absent: `tracestate`, and the export itself.

use std::sync::OnceLock;
use std::time::SystemTime;

use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{Span as _, SpanBuilder, SpanContext, Status, TraceContextExt, Tracer as _};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, Span as SdkSpan};

pub use opentelemetry::trace::SpanKind;

/// Header with the context of a trace.
pub const TRACEPARENT: &str = "traceparent";

static TRACER: OnceLock<SdkTracer> = OnceLock::new();

/// Exports the spans of this process through this tracer. Only the first call has an effect.
pub fn export_to(tracer: SdkTracer) {
    let _ = TRACER.set(tracer);
}

/// A span. It ends when it is dropped.
#[derive(Debug)]
pub struct Span {
    /// `None` without an exporter, or without a trace.
    exported: Option<SdkSpan>,
    /// Of a request: the context of the caller, if it is valid.
    caller: Option<SpanContext>,
}

impl Span {
    /// The span of a request with this `traceparent` header. Without a valid one, it begins a trace.
    pub fn of_request(method: &str, route: &str, traceparent: Option<&str>) -> Self {
        let caller = traceparent.and_then(read);
        let begin = |tracer: &SdkTracer| {
            let request = [
                KeyValue::new("http.request.method", method.to_owned()),
                KeyValue::new("http.route", route.to_owned()),
            ];
            let builder = SpanBuilder::from_name(format!("{method} {route}")).with_kind(SpanKind::Server);
            tracer.build_with_context(builder.with_attributes(request), &context_of(caller.clone()))
        };
        Self { exported: TRACER.get().map(begin), caller }
    }

    /// A span that begins now, below the stored context `parent`. Without one, nothing is exported.
    pub fn below(parent: Option<&str>, name: &'static str, kind: SpanKind) -> Self {
        Self::since(SystemTime::now(), parent, name, kind)
    }

    /// A span that began at this time.
    pub fn since(begun_at: SystemTime, parent: Option<&str>, name: &'static str, kind: SpanKind) -> Self {
        // Without an exporter, the context is not read.
        let parent = TRACER.get().and(parent).and_then(read);
        Self { exported: parent.and_then(|parent| begin(begun_at, parent, name, kind)), caller: None }
    }

    /// A span that begins now, below this one.
    pub fn child(&self, name: &'static str, kind: SpanKind) -> Self {
        let parent = self.exported.as_ref().filter(|span| span.is_recording()).map(|span| span.span_context().clone());
        Self { exported: parent.and_then(|parent| begin(SystemTime::now(), parent, name, kind)), caller: None }
    }

    /// True if the span is exported.
    pub fn is_exported(&self) -> bool {
        self.exported.as_ref().is_some_and(SdkSpan::is_recording)
    }

    /// The context of this span, for a `traceparent` header. Without an exporter, a request has that of its caller, and other
    /// spans have none.
    pub fn traceparent(&self) -> Option<String> {
        let context = self.exported.as_ref().map(SdkSpan::span_context).or(self.caller.as_ref())?;
        let mut header = Header(None);
        TraceContextPropagator::new().inject_context(&context_of(Some(context.clone())), &mut header);
        header.0
    }

    /// Adds an attribute. It must contain no personal data and no secret.
    pub fn set<V: Into<Value>>(&mut self, key: &'static str, value: impl FnOnce() -> V) {
        if let Some(span) = self.exported.as_mut().filter(|span| span.is_recording()) {
            span.set_attribute(KeyValue::new(key, value()));
        }
    }

    /// Marks the span as failed, if there is a reason.
    pub fn fail(&mut self, why: impl FnOnce() -> Option<String>) {
        if let Some(span) = self.exported.as_mut().filter(|span| span.is_recording())
            && let Some(why) = why()
        {
            span.set_status(Status::error(why));
        }
    }
}

fn begin(begun_at: SystemTime, parent: SpanContext, name: &'static str, kind: SpanKind) -> Option<SdkSpan> {
    let builder = SpanBuilder::from_name(name).with_kind(kind).with_start_time(begun_at);
    Some(TRACER.get()?.build_with_context(builder, &context_of(Some(parent))))
}

fn context_of(parent: Option<SpanContext>) -> Context {
    let context = Context::new();
    parent.map_or_else(|| context.clone(), |parent| context.with_remote_span_context(parent))
}

/// The context in a header; `None` if it is malformed.
fn read(traceparent: &str) -> Option<SpanContext> {
    let context =
        TraceContextPropagator::new().extract_with_context(&Context::new(), &Header(Some(traceparent.to_owned())));
    let found = context.span().span_context().clone();
    found.is_valid().then_some(found)
}

/// The value of the header, in place of all headers.
struct Header(Option<String>);

impl Extractor for Header {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.as_deref().filter(|_| key == TRACEPARENT)
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT]
    }
}

impl Injector for Header {
    fn set(&mut self, key: &str, value: String) {
        if key == TRACEPARENT {
            self.0 = Some(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn without_an_exporter_a_request_has_the_context_of_its_caller_and_spans_do_no_work() {
        assert_eq!(Span::of_request("GET", "/payments", Some(CALLER)).traceparent().as_deref(), Some(CALLER));
        let mut span = Span::below(Some(CALLER), "work", SpanKind::Internal);
        span.set("a", || -> i64 { panic!("computed without an exporter") });
        span.fail(|| panic!("computed without an exporter"));
        assert_eq!((span.traceparent(), span.is_exported()), (None, false));
    }

    #[test]
    fn malformed_contexts_are_ignored() {
        for malformed in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e473\u{e9}-00f067aa0ba902b7-01",
        ] {
            assert_eq!(Span::of_request("GET", "/payments", Some(malformed)).traceparent(), None, "{malformed}");
        }
    }
}
