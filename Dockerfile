# Image of the service. Without arguments, it has the features of a production build.
#
#   docker build --build-arg PAYFERRY_COMMIT="$(git rev-parse HEAD)" --tag payferry:0.2.0 .
#   docker build --build-arg FEATURES=sandbox --tag payferry-sandbox:0.2.0 .
#
# It has no shell, runs as user 65532 and writes to /var/lib/payferry only, so run it with a read-only root file system:
#
#   docker run --read-only --cap-drop ALL --security-opt no-new-privileges --volume payferry:/var/lib/payferry \
#     --volume ./payferry-etc:/etc/payferry:ro --env PAYFERRY_CONFIG=/etc/payferry/payferry.toml --stop-timeout 30 payferry:0.2.0

FROM docker.io/library/rust:1.95-slim-trixie AS build
WORKDIR /src
COPY . .
ARG FEATURES=""
# The context has no Git repository.
ARG PAYFERRY_COMMIT=""
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --profile dist --no-default-features --features "$FEATURES" --locked --package payferry \
    && install -D target/dist/payferry /image/usr/bin/payferry \
    && install -D LICENSE /image/usr/share/doc/payferry/copyright \
    && install -d -o 65532 -g 65532 -m 0750 /image/var/lib/payferry

# The C library, libgcc, certificates and time zones; nothing else.
FROM gcr.io/distroless/cc-debian13:nonroot
LABEL org.opencontainers.image.title="Payferry" \
      org.opencontainers.image.description="Stablecoin payment service for payment service providers" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /image/usr /usr
COPY --from=build --chown=65532:65532 /image/var/lib/payferry /var/lib/payferry
# In a container, other containers and the health checks of the platform must reach both listeners.
ENV PAYFERRY_SERVER__LISTEN=0.0.0.0:8080 \
    PAYFERRY_SERVER__OPERATOR_LISTEN=0.0.0.0:8081
WORKDIR /var/lib/payferry
VOLUME /var/lib/payferry
USER 65532:65532
EXPOSE 8080 8081
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s --retries=3 CMD ["/usr/bin/payferry", "health"]
ENTRYPOINT ["/usr/bin/payferry"]
CMD ["serve"]
