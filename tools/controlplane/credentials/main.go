// Command credentials writes the key material of one development cluster into a directory:
// a certificate authority (ca.crt), the API server's certificate and key (server.crt, server.key)
// and the key pair that signs ServiceAccount tokens (service-account.key, service-account.pub).
// It exists so that a machine with Go and Python, and no openssl, can start a cluster.
package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: credentials DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "credentials:", err)
		os.Exit(1)
	}
}

func write(directory string) error {
	authorityKey, err := newKey()
	if err != nil {
		return err
	}
	authority := authorityTemplate()
	authorityCertificate, err := sign(authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return err
	}
	// A verifier matches the server's issuer against the authority's own key id.
	parsed, err := x509.ParseCertificate(authorityCertificate)
	if err != nil {
		return err
	}
	serverKey, err := newKey()
	if err != nil {
		return err
	}
	serverCertificate, err := sign(serverTemplate(), parsed, serverKey.Public(), authorityKey)
	if err != nil {
		return err
	}
	tokenKey, err := newKey()
	if err != nil {
		return err
	}
	tokenPublic, err := x509.MarshalPKIXPublicKey(tokenKey.Public())
	if err != nil {
		return err
	}
	for _, file := range []struct {
		name, kind string
		bytes      []byte
	}{
		{"ca.crt", "CERTIFICATE", authorityCertificate},
		{"server.crt", "CERTIFICATE", serverCertificate},
		{"server.key", "EC PRIVATE KEY", private(serverKey)},
		{"service-account.key", "EC PRIVATE KEY", private(tokenKey)},
		{"service-account.pub", "PUBLIC KEY", tokenPublic},
	} {
		block := pem.EncodeToMemory(&pem.Block{Type: file.kind, Bytes: file.bytes})
		if err := os.WriteFile(filepath.Join(directory, file.name), block, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

func private(key *ecdsa.PrivateKey) []byte {
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		panic(err) // a P-256 key always has an encoding
	}
	return encoded
}

func sign(template, parent *x509.Certificate, public crypto.PublicKey, by crypto.Signer) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour) // a clock set back a little does not lock anyone out
	template.NotAfter = time.Now().AddDate(1, 0, 0)
	return x509.CreateCertificate(rand.Reader, template, parent, public, by)
}

func authorityTemplate() *x509.Certificate {
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: "duepoint-development-ca"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
}

func serverTemplate() *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)},
	}
}
