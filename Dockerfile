# One image for the gateway, the nightly reconciliation and the simulated acquirer.
FROM golang:1.26-alpine AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags="-s -w" -o /out/ ./cmd/paymentsd ./cmd/reconcile ./cmd/acquirersim

FROM alpine:3.22
RUN adduser -D -H -u 10001 paymentsd
COPY --from=build /out/ /usr/local/bin/
USER 10001
EXPOSE 8080
ENTRYPOINT ["paymentsd"]
CMD ["serve"]
